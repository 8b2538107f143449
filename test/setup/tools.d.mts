export type Tool = 'redis-server' | 'redis-sentinel' | 'redis-cli' | 'openssl' | 'promtool' | 'chromium'
export declare const TOOLS: Record<Tool, readonly string[]>
export declare function findTool(name: Tool): string | null
