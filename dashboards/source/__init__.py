"""The dashboards and rules as plain data, from which generate.py writes the files that Grafana and Prometheus read."""
