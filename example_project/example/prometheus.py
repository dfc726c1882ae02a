"""A crawl's stats for Prometheus, while it runs. It needs prometheus_client (pip install it), and

EXTENSIONS = {"example.prometheus.Exporter": 500}
"""

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from scrapy import signals


class Exporter(Collector):
    def __init__(self, crawler):
        self.crawler = crawler
        registry = CollectorRegistry()
        registry.register(self)
        port = crawler.settings.getint("PROMETHEUS_PORT", 9410)
        self.server, self.thread = start_http_server(port, "127.0.0.1", registry)
        crawler.signals.connect(self.close, signals.spider_closed)

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def collect(self):
        found = GaugeMetricFamily(
            "scrapy_stat", "A stat of the crawl.", labels=["stat"]
        )
        for name, value in dict(self.crawler.stats.get_stats()).items():
            if isinstance(value, int | float):
                found.add_metric([name], value)
        yield found

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
