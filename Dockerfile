# Both bases may be pinned: FROM node:24-bookworm-slim@sha256:… The digests could not be looked up where this file was
# written. `docker buildx imagetools inspect node:24-bookworm-slim` prints them.
FROM node:24-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json LICENSE ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.demo.json ./
COPY scripts ./scripts
COPY client ./client
COPY sandbox ./sandbox
COPY demo ./demo
COPY src ./src
COPY operator ./operator
# The commit, for bff_build_info: docker build --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION
RUN npm run build

# The compiled code that Node keeps is for one file system path, user, Node version and set of V8 options.
FROM node:24-bookworm-slim AS warm
WORKDIR /app
COPY package.json ./
COPY --from=build /app/dist ./dist
COPY scripts/warm.mjs /tmp/
RUN mkdir compiled && chown 1000:1000 compiled
USER 1000:1000
ENV NODE_ENV=production NODE_COMPILE_CACHE=/app/compiled
# Node writes files that only their owner reads.
RUN node /tmp/warm.mjs /app/dist && chmod -R a+rX compiled

FROM debian:bookworm-slim
ARG REVISION
LABEL org.opencontainers.image.title="token-handler-bff" \
      org.opencontainers.image.description="Backend-for-frontend server: OAuth 2.0 sign-in, tokens kept in Redis behind a session cookie." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /usr/local/bin/node /usr/local/bin/node
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=warm /app/dist ./dist
# Root owns it, so the server cannot change the code that its next start runs.
COPY --from=warm --chown=0:0 /app/compiled ./compiled
ENV NODE_ENV=production NODE_COMPILE_CACHE=/app/compiled
# The uid of `node` in the official image, as a number: Kubernetes verifies only that not to be root.
USER 1000:1000
EXPOSE 3000 9464
STOPSIGNAL SIGTERM
# A running process is healthy even while Redis is away: restarting it would not help.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.OPS_PORT || 9464}/livez`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/main.js"]
