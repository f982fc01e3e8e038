"""The dashboard of models that generate."""

from source.grafana import Dashboard, Query, bars, heatmap, lines, number
from source.promql import MODEL, Histogram, counter, share
from source.traffic import BASE, quantiles

FIRST_TOKEN = Histogram("lapwing_time_to_first_token_seconds")
PER_TOKEN = Histogram("lapwing_time_per_output_token_seconds")
GAP = Histogram("lapwing_inter_token_seconds")
PHASE = Histogram("lapwing_phase_duration_seconds")
FIRST_BYTE = Histogram("lapwing_time_to_first_byte_seconds")
STREAM = Histogram("lapwing_stream_duration_seconds")
PER_UNIT = Histogram("lapwing_stage_seconds_per_unit")
SEEN = 'observer="proxy"'
UNITS = "lapwing_work_units_total"


def generative():
    at_a_glance = [
        number("First token, p50", "After what time do half of the clients see the first content?", Query(FIRST_TOKEN.quantile(0.5, "", SEEN)), unit="s"),
        number("First token, p99", "And the last one in a hundred?", Query(FIRST_TOKEN.quantile(0.99, "", SEEN)), unit="s"),
        number("Between tokens, p50", "How evenly does the text flow?", Query(GAP.quantile(0.5)), unit="s"),
        number("Between tokens, p99", "For how long does it stall?", Query(GAP.quantile(0.99)), unit="s"),
        number("Output tokens", "How many tokens are generated each second?", Query(counter(UNITS, where='unit="output_token"')), unit="short"),
        number("Input tokens", "How many are read each second?", Query(counter(UNITS, where='unit="input_token"')), unit="short"),
    ]
    tokens = [
        lines("Time to first token", "When do clients see the first content? A dot is a request: its link opens the trace.", *quantiles(FIRST_TOKEN, SEEN), unit="s"),
        lines("Time per output token", "How long does a token take after the first, in the mean of an answer?", *quantiles(PER_TOKEN, SEEN), unit="s"),
        lines("Inter-token latency", "How long are the gaps between content chunks, each on its own?", *quantiles(GAP, exemplars=False), unit="s"),
        heatmap("Where times to first token lie", "Is there a queue before the first token?", FIRST_TOKEN.heat(SEEN)),
        heatmap("Where gaps between tokens lie", "Does the prefill of others interrupt the flow?", GAP.heat(), exemplars=False),
        lines("Tokens", "How many tokens are read and generated each second?", Query(counter(UNITS, "model, unit", 'unit=~"input_token|output_token"'), "{{model}} {{unit}}")),
    ]
    phases = [
        lines("Prefill against decode", "Which of the two takes the model's time?", Query(PHASE.sum("phase"), "{{phase}}"), unit="s", stacked="percent"),
        lines("Prefill and decode, p50 and p99", "How long do they take?", Query(PHASE.quantile(0.5, "phase"), "{{phase}} p50", True), Query(PHASE.quantile(0.99, "phase"), "{{phase}} p99", True), unit="s"),
        lines("Per token, p50", "How long does an input token take in prefill, and an output token in decode?", Query(PER_UNIT.quantile(0.5, "stage, unit", 'stage=~"prefill|decode"'), "{{stage}} per {{unit}}"), unit="s", logarithmic=True),
        lines("First token: the client's view and the server's", "How much of the wait is outside the server?", Query(FIRST_TOKEN.quantile(0.5, "observer"), "{{observer}} p50"), Query(FIRST_TOKEN.quantile(0.99, "observer"), "{{observer}} p99"), unit="s"),
        lines("Server's means by phase", "What do the server's own statistics say?", Query(f"{counter('lapwing_polled_stage_seconds_total', 'model, stage, phase', scope=MODEL)} / {counter('lapwing_polled_requests_total', 'model, stage, phase', scope=MODEL)}", "{{model}} {{stage}} {{phase}}"), unit="s"),
        bars("Share of forward by phase", "Prefill or decode?", Query(share(PHASE.sum("phase"), PHASE.sum(), "phase"), "{{phase}}"), unit="percentunit"),
    ]
    streams = [
        lines("Time to first byte", "When does the body of a streamed answer begin?", *quantiles(FIRST_BYTE), unit="s"),
        lines("Long-lived streams", "How long are connections open that upgrade, and streams of gRPC both ways?", *quantiles(STREAM, exemplars=False), unit="s"),
        lines("Bytes of long-lived streams", "How much do they carry? Counted when they end.", Query(counter("lapwing_stream_bytes_total", "direction"), "{{direction}}"), unit="Bps"),
    ]
    rows = [("At a glance", at_a_glance), ("Tokens", tokens), ("Prefill and decode", phases), ("Streams", streams)]
    return Dashboard("generative", "Generative", "First tokens, the flow of tokens, prefill against decode.", BASE, rows)
