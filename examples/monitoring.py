"""Serve the metrics of a wallet to Prometheus, on http://127.0.0.1:9837/metrics.

python monitoring.py ADDRESS… --peer 127.0.0.1:8333 --db wallet.db

It needs the `prometheus-client` package.
"""

import argparse
from collections.abc import Iterator
from dataclasses import fields

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from spvfilter import SyncLightClient, WatchList
from spvfilter.light import Metrics
from spvfilter.network import NETWORKS

COUNTERS = [
    "connections",
    "bans",
    "bytes_received",
    "bytes_sent",
    "messages_received",
    "messages_sent",
    "headers_received",
    "blocks_received",
    "filters_received",
    "transactions_received",
    "transactions_turned_away",
    "reorganizations",
    "commits",
]


class WalletCollector:
    """Reads the metrics for each request. If the client has ended, the request fails, which is an alarm."""

    def __init__(self, client: SyncLightClient) -> None:
        self.client = client

    def collect(self) -> Iterator[Metric]:
        with self.client.timeout(5):
            metrics = self.client.metrics()
        for field in fields(Metrics):
            value = getattr(metrics, field.name)
            kind = CounterMetricFamily if field.name in COUNTERS else GaugeMetricFamily
            if value is not None:
                yield kind(f"spvfilter_{field.name}", f"Metrics.{field.name} of spvfilter", value=float(value))


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the metrics of a wallet to Prometheus.")
    parser.add_argument("address", nargs="+")
    parser.add_argument("--network", choices=[each.name for each in NETWORKS], default="mainnet")
    parser.add_argument("--peer", action="append", required=True, help="HOST:PORT of a node")
    parser.add_argument("--db", default="wallet.db")
    parser.add_argument("--port", type=int, default=9837, help="0 means any free port")
    args = parser.parse_args()

    watch = WatchList.from_addresses(args.address, args.network)
    with SyncLightClient(watch, peers=args.peer, store=args.db) as client:
        registry = CollectorRegistry()
        registry.register(WalletCollector(client))
        server, thread = start_http_server(args.port, "127.0.0.1", registry)
        print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
        try:
            for event in client.events():
                print(type(event).__name__, flush=True)
        except KeyboardInterrupt:
            print("stopped")
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


if __name__ == "__main__":
    main()
