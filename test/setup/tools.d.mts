export type Tool =
  | 'redis-server'
  | 'redis-cli'
  | 'openssl'
  | 'promtool'
  | 'nginx'
  | 'haproxy'
  | 'caddy'
  | 'chromium'
  | 'firefox'
export declare function givenPath(name: Tool): string | undefined
export declare function findTool(name: Tool): string | null
