// nginx as a plain reverse proxy: no session, one worker. The lower bound for any server.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { get } from '../sign-in.mjs'

export const nginx = {
  name: 'nginx',
  title: 'nginx proxy_pass, no session',
  program: 'nginx',
  start: (services) => startNginx(services, 'nginx', ''),
}

/** The buffers hold a whole long response. Otherwise nginx writes it to a file if the reader is slower. */
export const nginxTuned = {
  name: 'nginx-tuned',
  title: 'nginx proxy_pass, buffers of 512 KB, no session',
  program: 'nginx',
  start: (services) =>
    startNginx(services, 'nginx-tuned', 'proxy_buffers 32 16k; proxy_max_temp_file_size 0;'),
}

async function startNginx(services, name, buffers) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const path = join(services.folder, name)
  writeFileSync(
    `${path}.conf`,
    configuration({ port, path, buffers, upstream: new URL(services.upstreamUrl).host }),
  )
  const { pid, stop } = await services.processes.start(
    findProgram('nginx'),
    ['-c', `${path}.conf`, '-p', services.folder],
    { core: 'server', ready: () => get(url, {}) },
  )
  return { pid, url, cookies: null, stop }
}

const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

function configuration({ port, path, buffers, upstream }) {
  return `
daemon off;
worker_processes 1;
${process.getuid?.() === 0 ? 'user root;' : ''}
pid ${path}.pid;
error_log ${path}-error.log;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 100000000;
  ${TEMPORARY.map((name) => `${name}_temp_path ${path}-${name};`).join('\n  ')}
  upstream resource { server ${upstream}; keepalive 128; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://resource;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Cookie "";
      proxy_set_header Authorization "Bearer ${'a'.repeat(800)}";
      ${buffers}
    }
  }
}
`
}
