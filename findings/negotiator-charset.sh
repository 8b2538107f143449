#!/bin/sh
# negotiator 1.1.0: the Accept header `application/json; charset=utf-8`, which some clients send, accepts no JSON.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund negotiator@1.1.0
cat > run.mjs <<'END'
import Negotiator from 'negotiator'

const chosen = (accept) => new Negotiator({ headers: { accept } }).mediaType(['application/json'])
const [plain, withCharset] = [chosen('application/json'), chosen('application/json; charset=utf-8')]
console.log('negotiator 1.1.0:', JSON.stringify({ plain, withCharset: withCharset ?? null }))
process.exit(plain === 'application/json' && withCharset === undefined ? 0 : 1)
END
node run.mjs
