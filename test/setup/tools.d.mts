type Required = 'redis-server' | 'redis-cli' | 'openssl' | 'chromium'
export type Tool = Required | 'promtool' | 'nginx' | 'haproxy' | 'caddy' | 'firefox'
export declare function findTool(name: Tool): string | null
