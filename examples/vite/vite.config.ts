import { defineConfig } from 'vite'

// `PUBLIC_URL` of the server is the address of Vite, since that is what the browser sees.
const { PUBLIC_URL = 'http://localhost:5173', PORT = '3000' } = process.env

export default defineConfig({
  server: {
    port: Number(new URL(PUBLIC_URL).port),
    strictPort: true,
    // `changeOrigin: false` keeps the host that the browser asked for. The server compares it with PUBLIC_URL.
    proxy: {
      '^/(auth|flux|site|data|openapi\\.json)([/?]|$)': {
        target: `http://localhost:${PORT}`,
        changeOrigin: false,
      },
    },
    // The client is outside of this folder here. A page that copies it needs no such line.
    fs: { allow: ['.', '../../client'] },
  },
})
