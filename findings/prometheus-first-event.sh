#!/bin/sh
# Prometheus (promtool, for example Debian's package prometheus): increase() of a counter that appears with 1 is 0, so an alert on it
# misses the first event of a process. It is 1 where the counter was there with 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > test.yml <<'END'
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - { series: 'events_total{from="its first event"}', values: '_x5 1x10' }
      - { series: 'events_total{from="the start"}', values: '0x5 1x10' }
    promql_expr_test:
      - expr: increase(events_total{from="its first event"}[10m]) > 0
        eval_time: 9m
        exp_samples: []
      - expr: (increase(events_total{from="the start"}[10m]) > bool 0)
        eval_time: 9m
        exp_samples: [{ labels: '{from="the start"}', value: 1 }]
END
promtool --version 2>&1 | head -n 1
promtool test rules test.yml
echo 'increase() > 0: nothing for the counter that appears with 1, one sample for the counter that was there with 0'
