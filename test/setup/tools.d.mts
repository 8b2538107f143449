type Required = 'redis-server' | 'redis-cli' | 'openssl' | 'chromium'
export type Tool = Required | 'promtool' | 'nginx' | 'haproxy' | 'caddy' | 'apache' | 'varnish' | 'hitch' | 'firefox'
export declare function findTool(name: Tool): string | null
