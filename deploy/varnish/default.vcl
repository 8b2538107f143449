# Varnish 7.1 or newer in front of two replicas, behind a TLS terminator that speaks the PROXY protocol, such as hitch: copy
# it to /etc/varnish/default.vcl and replace the name app.example.com and the addresses. On every replica set TRUST_PROXY to
# the address of this machine. Start Varnish with a socket that is named `tls` for the terminator, and HTTP/2:
#   varnishd -f /etc/varnish/default.vcl -a :80 -a tls=127.0.0.1:8443,PROXY -p feature=+http2
#   hitch --frontend='[*]:443' --backend='[127.0.0.1]:8443' --write-proxy-v2 --alpn-protos=h2,http/1.1 app.example.com.pem
vcl 4.1;

import directors;

# A probe can only ask the port that requests go to. A replica that is stopping is left within 1.5 seconds: less than
# SHUTDOWN_DELAY_SECONDS. One that is ready again is used first, or two that restart one by one would leave a gap.
probe ready {
    .url = "/auth/ready";
    .expected_response = 204;
    .interval = 500ms;
    .timeout = 900ms;
    .window = 3;
    .threshold = 1;
    .initial = 1;
}

# Two calls (UPSTREAM_TIMEOUT_MS) with a refresh each take 80 seconds at most: docs/deployment.md.
backend replica1 {
    .host = "10.0.0.11";
    .port = "3000";
    .probe = ready;
    .connect_timeout = 2s;
    .first_byte_timeout = 90s;
    .between_bytes_timeout = 90s;
}

backend replica2 {
    .host = "10.0.0.12";
    .port = "3000";
    .probe = ready;
    .connect_timeout = 2s;
    .first_byte_timeout = 90s;
    .between_bytes_timeout = 90s;
}

# The same without a probe. Without Redis no replica is ready. Then all are asked: they say so in their own words, and reads
# wait for it.
backend unready1 {
    .host = "10.0.0.11";
    .port = "3000";
    .connect_timeout = 2s;
    .first_byte_timeout = 90s;
    .between_bytes_timeout = 90s;
}

backend unready2 {
    .host = "10.0.0.12";
    .port = "3000";
    .connect_timeout = 2s;
    .first_byte_timeout = 90s;
    .between_bytes_timeout = 90s;
}

sub vcl_init {
    new replicas = directors.round_robin();
    replicas.add_backend(replica1);
    replicas.add_backend(replica2);
    new unready = directors.round_robin();
    unready.add_backend(unready1);
    unready.add_backend(unready2);
    new all = directors.fallback();
    all.add_backend(replicas.backend());
    all.add_backend(unready.backend());
}

sub vcl_recv {
    if (local.socket != "tls") {
        return (synth(308));
    }
    # Replaces what the browser sent, which could be forged.
    set req.http.X-Forwarded-For = client.ip;
    set req.http.X-Forwarded-Proto = "https";
    # The server makes one.
    unset req.http.X-Request-Id;
    # Anybody could choose what is traced. Remove this line if pages begin traces: docs/tracing.md.
    unset req.http.traceparent;
    # Nothing is cached: responses belong to one user.
    return (pass);
}

sub vcl_backend_fetch {
    set bereq.backend = all.backend();
    return (fetch);
}

sub vcl_backend_response {
    # Bytes and fields pass as they are.
    return (deliver);
}

# Another replica gets a GET or HEAD without a response: up to twice, since one may restart while another is down.
sub vcl_backend_error {
    if (bereq.retries < 2 && (bereq.method == "GET" || bereq.method == "HEAD")) {
        return (retry);
    }
}

sub vcl_deliver {
    unset resp.http.X-Varnish;
    unset resp.http.Age;
    return (deliver);
}

sub vcl_synth {
    if (resp.status == 308) {
        set resp.http.Location = "https://app.example.com" + req.url;
        return (deliver);
    }
}
