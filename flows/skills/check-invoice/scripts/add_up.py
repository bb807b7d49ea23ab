"""Reads lines of an invoice as JSON and prints the sums: net, tax by rate, and gross."""

import json
import sys
from decimal import Decimal

lines = json.load(sys.stdin, parse_float=Decimal)
net = sum(line["euros"] for line in lines)
tax = {}
for line in lines:
    tax[str(line["rate"])] = tax.get(str(line["rate"]), 0) + line["euros"] * line["rate"] / 100
gross = net + sum(tax.values())
sums = {"net": net, **{f"tax {rate} %": euros for rate, euros in sorted(tax.items())}, "gross": gross}
print("\n".join(f"{name}: {euros:.2f}" for name, euros in sums.items()))
