"""The controlled experiments: training runs at several sizes, measured and judged (docs/lab.md)."""
