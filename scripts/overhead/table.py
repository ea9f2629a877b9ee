"""Prints what `stageline overhead --json` wrote, a line a figure."""
import json, sys

c = json.load(open(sys.argv[1]))
three = lambda v: "-" if v is None else f"{v:.3f}"
pair = lambda i: f"{three(i['at'])} ({three(i['lo'])} to {three(i['hi'])}), n = {i['n']}"
for r in c["ratios"]:
    print(f"{r['what']:36}  on ÷ off {pair(r['on_off']):36}  off ÷ off {pair(r['off_off'])}")
for f in c["recorder"] or []:
    if f["p50"] is not None:
        print(f"{f['what']:40}  {f['unit']:24}  {f['p50']:8.2f}  ({f['min']:.2f} to {f['max']:.2f})  n = {f['n']}")
print(c["sentence"])
