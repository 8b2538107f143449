#!/bin/sh
# openapi-python-client 0.29.1: an operation with a header parameter whose schema is a `const` is left out of the client, and the
# exit code is 0. With an `enum` of one value it is there.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check openapi-python-client==0.29.1
for schema in '{"const":"1"}' '{"type":"string","enum":["1"]}'; do
  cat > api.json <<END
{"openapi":"3.1.0","info":{"title":"api","version":"1"},"paths":{"/things":{"get":{"operationId":"listThings",
"parameters":[{"name":"X-CSRF","in":"header","required":true,"schema":$schema}],"responses":{"200":{"description":"ok"}}}}}}
END
  rm -rf out
  venv/bin/openapi-python-client generate --path api.json --output-path out --meta none > log.txt 2>&1
  echo "exit code $?, operations for $schema: $(find out -name list_things.py | wc -l)"
  find out -name list_things.py | wc -l >> counts.txt
done
[ "$(tr -d ' \n' < counts.txt)" = 01 ]
