-- Takes turns with the requests of the file BENCH_REQUESTS: one a line, method, path and Cookie header.
-- Ends with one line of JSON.
local requests = {}
local at = 0

function init(args)
  for line in io.lines(os.getenv('BENCH_REQUESTS')) do
    local method, path, cookie = line:match('^(.-)\t(.-)\t(.*)$')
    local headers = {}
    for name, value in pairs(wrk.headers) do headers[name] = value end
    if cookie ~= '' then headers['cookie'] = cookie end
    requests[#requests + 1] = wrk.format(method, path, headers)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"failed":%d,"p50":%.3f,"p99":%.3f}\n',
    summary.requests, summary.duration / 1e6, e.status + e.connect + e.read + e.write + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
