type Required = 'redis-server' | 'redis-cli' | 'openssl' | 'chromium' | 'chromium-whole'
export type Tool =
  | Required
  | 'promtool'
  | 'nginx'
  | 'haproxy'
  | 'caddy'
  | 'apache'
  | 'varnish'
  | 'hitch'
  | 'lighttpd'
  | 'h2o'
  | 'nghttpx'
  | 'squid'
  | 'tinyproxy'
  | 'firefox'
export declare function findTool(name: Tool): string | null
