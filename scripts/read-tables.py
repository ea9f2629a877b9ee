#!/usr/bin/env python3
"""Reads the tables of a sealed run with DuckDB and with pyarrow and compares what the two see.

    pip install duckdb pyarrow
    scripts/read-tables.py RUN

Prints one line for each table: name and rows.
"""
import glob
import json
import os
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


def main(run):
    records = json.load(open(os.path.join(run, "metadata.json")))["spool"]["records"]
    for path in sorted(glob.glob(os.path.join(run, "kernel", "*-00000.parquet"))):
        name = os.path.basename(path)[: -len("-00000.parquet")]
        parts = path.replace("-00000", "-*")
        arrow = pa.concat_tables(pq.read_table(p) for p in sorted(glob.glob(parts)))
        columns = ", ".join(arrow.column_names)
        duck = duckdb.connect().execute(f"select {columns} from read_parquet('{parts}')").fetchall()
        rows = list(zip(*(c.to_pylist() for c in arrow.columns)))
        if duck != rows:
            sys.exit(f"{name}: DuckDB and pyarrow differ")
        if records.get(name, len(rows)) != len(rows):
            sys.exit(f"{name}: {len(rows)} rows, {records[name]} records were sealed")
        print(name, len(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
