"""A run of tests/gpu.sh as Markdown: the times of each part beside their budget, and beside PyTorch's in the same run.

Rows of `lapwing engine bench --device cuda --json --samples` must have model, precision, batch, length, samples_us (from host memory to
host memory, each with a new input). On a GPU they also have gemm ("own" if no library computed a product), flops, utilisation, bound, and
the times of the parts: stage_us, launch_us, device_us (to_device, kernels, to_host), nodes_us (each kernel, timed by an event behind it)
and mark_us (the cost of such an event). docs/ENGINE.md describes them. All quantiles are computed from the raw samples. The device's
clocks, steps and kernels, which record.py adds, may be missing: a run that was ended early has only what it had measured.
"""

import math

# (label, its name in pieces_us(), its budget in µs); those that begin with a dash are parts of one layer
MLP = [("stage, launch, first kernel", "stage_launch_first", 5), ("three GEMVs with epilogues", "gemvs", 7), ("edges, flag", "edges_flag", 3)]
MINILM = [
    ("stage, launch, H2D", "stage_launch_h2d", 14),
    ("embedding, norm", "embedding_norm", 5),
    ("six layers", "layers", 402),
    ("– QKV of a layer", "qkv", 11),
    ("– attention", "attention", 9),
    ("– projection", "projection", 6),
    ("– FFN", "ffn", 28),
    ("– norms and edges", "norms_edges", 13),
    ("pool, D2H, wait", "pool_d2h_wait", 10),
]
CASES = {"mlp": ("MLP 512-1024-1024-1, batch 1, fp32", ("mlp", "fp32", 1, None), MLP, 15)}
CASES["minilm"] = ("MiniLM 32×128, fp16, sentence embedding", ("minilm", "fp16", 32, 128), MINILM, 430)
COMPILED = ("torch.compile", "torch.compile+graph")
IN_EACH = (
    "In Lapwing's times: copies of the batch into and out of staging memory, to and from the device, kernels and waiting. In PyTorch's: copies of "
    "pinned inputs and answers, the model and waiting; `torch.compile+graph` also copies the input to where its graph reads."
)


def quantile(samples, share):
    """The nearest rank."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def of(rows, key, **more):
    """The last row of `key` (model, precision, batch, length) that has samples and the values of `more`, or None."""
    found = None
    for row in rows:
        same = (row["model"], row["precision"], row["batch"], row.get("length")) == key
        if same and row.get("samples_us") and all(row.get(name) == value for name, value in more.items()):
            found = row
    return found


def default_row(run, key):
    """The first row of `key`, with default settings. Rows with `--gemm own` are measured after it."""
    return of(run["rows"][::-1], key)


def median(row):
    return quantile(row["samples_us"], 0.5) if row else None


def compiled(run, key):
    """The fastest of PyTorch's compiled rows, by the median."""
    rows = [row for way in COMPILED if (row := of(run["torch"], key, by=way))]
    return min(rows, key=median) if rows else None


def bounds(run):
    """(label, bound as text, measured value as text or None, whether the bound is met or None)."""
    mlp, minilm = (default_row(run, CASES[name][1]) for name in CASES)
    own = of(run["rows"], CASES["minilm"][1], gemm="own")
    out = []

    def add(what, most, value, unit):
        shown = None if value is None else f"{value:.2f}×" if unit == "×" else f"{value:.1f} {unit}"
        out.append((what, f"≤ {most:g}{'×' if unit == '×' else ' ' + unit}", shown, None if value is None else value <= most))

    add("MLP b1 fp32, p50", 20, median(mlp), "µs")
    add("MLP b1 fp32, p99", 40, quantile(mlp["samples_us"], 0.99) if mlp else None, "µs")
    add("MiniLM 32×128 fp16, p50 (stretch 350 µs)", 500, median(minilm), "µs")
    add("MiniLM 32×128 fp16, p50, own products only", 900, median(own), "µs")
    for name, row, most in (("MLP", mlp, 0.8), ("MiniLM", minilm, 1.0)):
        theirs = compiled(run, CASES[name.lower()][1])
        add(f"{name}: p50 ÷ that of torch.compile (max-autotune, CUDA graphs)", most, median(row) / median(theirs) if row and theirs else None, "×")
    return out


def misses(run):
    """Whether a bound was missed or not measured, or a step failed."""
    return any(not met for *_, met in bounds(run)) or any(step["ok"] is False for step in run["steps"])


def table(head, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def nodes_us(row):
    """(op, µs) of each node in order, or None.

    A kernel's time is measured with an event behind it, less the cost of the event. The times are then scaled so that their sum is the
    time of all kernels without events, because medians do not add up and an event keeps two kernels from overlapping.
    """
    parts = [(part["node"], part["op"], max(0.0, part["us"] - row.get("mark_us", 0.0))) for part in row.get("nodes_us") or []]
    whole = sum(us for *_, us in parts)
    if not whole:
        return None
    nodes, before = [], None
    for node, op, us in parts:
        us *= row["device_us"]["kernels"] / whole
        if node == before:  # a copy or a quantisation for the same node
            nodes[-1] = (op, nodes[-1][1] + us)
        else:
            nodes.append((op, us))
        before = node
    return nodes


def encoder_layers(ops):
    """(first node, attention, node behind the last) of each layer; [] if the layers are not like MiniLM's.

    MiniLM's layers have QKV, attention, projection, norm, two products, norm. Other nodes may come in between, like the map of the mask
    in the first layer.
    """
    spans = []
    for at in (at for at, op in enumerate(ops) if op == "attention"):
        norms = [place for place in range(at, len(ops)) if ops[place] == "layer_norm"][:2]
        products = [place for place in range(at) if ops[place] == "gemm"]
        if len(norms) < 2 or not products or ops[at : norms[1]].count("gemm") != 3:
            return []
        spans.append((products[-1], at, norms[1] + 1))
    return spans


def pieces_us(row, name):
    """µs of those parts of MLP or MINILM that can be computed from the row, by name.

    They are the host's time before the device begins, the parts of the device's time, and the remainder of the median (the latency to the
    first kernel and from the last one, waiting, reading).
    """
    if not row or "device_us" not in row:
        return {}
    device, p50 = row["device_us"], quantile(row["samples_us"], 0.5)
    before = row["stage_us"] + row["launch_us"] + device["to_device"]
    if name == "mlp":
        return {"stage_launch_first": before, "gemvs": device["kernels"], "edges_flag": p50 - before - device["kernels"]}
    nodes = nodes_us(row)
    spans = encoder_layers([op for op, _ in nodes]) if nodes else []
    if not spans:
        return {}
    us = lambda places: sum(nodes[place][1] for place in places)  # noqa: E731
    layers = {"qkv": 0.0, "attention": 0.0, "projection": 0.0, "ffn": 0.0, "norms_edges": 0.0}
    for first, attention, end in spans:
        products = [place for place in range(attention, end) if nodes[place][0] == "gemm"]
        rest = set(range(first, end)) - {first, attention, *products}
        for piece, places in (("qkv", [first]), ("attention", [attention]), ("projection", products[:1]), ("ffn", products[1:]), ("norms_edges", rest)):
            layers[piece] += us(places) / len(spans)
    embedding, whole = us(range(spans[0][0])), us(range(spans[0][0], spans[-1][2]))
    return layers | {"stage_launch_h2d": before, "embedding_norm": embedding, "layers": whole, "pool_d2h_wait": p50 - before - embedding - whole}


def pieces(run, name):
    title, key, parts, total = CASES[name]
    row = default_row(run, key)
    measured = pieces_us(row, name)
    # the device begins before the launch has returned, so the remainder of the median may be negative
    told = lambda us: f"{us:.1f}" if us >= 0 else f"overlap of {-us:.1f}"  # noqa: E731
    cells = [[what, f"{budget}", told(measured[piece]) if piece in measured else "–"] for what, piece, budget in parts]
    shown = [f"{quantile(row['samples_us'], share):.1f}" for share in (0.5, 0.99)] if row else ["–", "–"]
    cells.append(["**sum; measured p50 / p99**", f"≈ {total}", " / ".join(shown)])
    return table([title, "budget, µs", "measured, µs"], cells)


def beside_torch(run):
    cells = []
    for title, key, *_ in CASES.values():
        ours = default_row(run, key)
        for row in [of(run["torch"], key, by=way) for way in ("eager", *COMPILED)]:
            if row and ours:
                p50, p99 = (quantile(row["samples_us"], share) for share in (0.5, 0.99))
                cells.append([title.split(",")[0], row["by"], f"{p50:.1f}", f"{p99:.1f}", f"{median(ours) / p50:.2f}×"])
    version = next((row["torch"] for row in run["torch"]), None)
    made = table([f"compared with PyTorch {version}", "how", "p50, µs", "p99, µs", "Lapwing's p50 ÷ this"], cells)
    return f"{made}\n\n{IN_EACH}" if cells else None


def all_rows(run):
    """p50 and utilisation by model, shape and precision, of the rows with default settings."""
    precisions = ("fp32", "tf32", "fp16", "int8")
    cells = []
    for model, batch, length in sorted({(r["model"], r["batch"], r.get("length")) for r in run["rows"] if r.get("samples_us")}, key=lambda key: (key[0], key[1], key[2] or 0)):
        rows = [default_row(run, (model, precision, batch, length)) for precision in precisions]
        if any(rows):
            shape = f"{batch}×{length}" if length else f"{batch}"
            cells.append([model, shape, *(f"{median(row):.1f}{utilised(row)}" if row else "–" for row in rows)])
    return table(["p50, µs (utilisation)", "shape", *precisions], cells) if cells else None


def utilised(row):
    return f" ({row['utilisation']:.2f})" if row.get("utilisation") is not None else ""


def clocks(run):
    """Sentences about the device's clocks during the measurements, or None without samples."""
    told = []
    for about in run.get("watched") or []:
        spans = [(about.get("sm_mhz"), "MHz"), (about.get("power_w"), "W")]
        parts = [f"{span[0]:.0f} to {span[2]:.0f}, at the median {span[1]:.0f} {unit}" for span, unit in spans if span]
        reasons = about.get("reasons")
        if reasons is not None:
            slowed = [f"{reason} {count}" for reason, count in reasons.items() if reason != "idle"]
            parts.append("not throttled" if not slowed else f"throttled ({', '.join(slowed)} of {about['samples']} times)")
        if parts:
            told.append(f"{about['when']}: {'; '.join(parts)}")
    most = next((row["clocks.max.sm"] for row in run.get("clocks") or [] if row.get("clocks.max.sm")), None)
    most = f" (at most {most} MHz)" if most else ""
    return f"The device's clocks, sampled twice a second{most}. " + ". ".join(map(capital, told)) + "." if told else None


def capital(text):
    return text[:1].upper() + text[1:]


def fate(step):
    """How a step or a kernel's check ended, or why it was not run."""
    if step["ok"] is None:
        return f"not run here: {(step.get('last_line') or step.get('said') or 'no reason').rstrip('.')}"
    return "ok" if step["ok"] else f"**failed**, code {step['code']}"


def of_run(run):
    """The section of one device."""
    device = run["device"]
    made = [f"### {device['name']}"]
    driver = f"driver {device['driver']}, " if device.get("driver") else ""
    library = device.get("cublaslt")
    library = f"cublasLt {library['version']}" if library else "no cublasLt found"
    made.append(
        f"Measured {run['date'][:10]} at commit {run['commit']} by `tests/gpu.sh` in {run['seconds']} s: {driver}CUDA {device['cuda']}, compute capability "
        f"{device['capability']}, {device['multiprocessors']} multiprocessors, {library}. From host memory to host memory, a fresh input each call; "
        f"raw samples in `benches/device/{run['file']}`."
    )
    made += [part for part in (clocks(run),) if part]
    verdict = {True: "{}", False: "**missed**: {}", None: "**not measured**"}
    made.append(table(["what", "bound", "measured"], [[what, bound, verdict[met].format(shown)] for what, bound, shown, met in bounds(run)]))
    made += [pieces(run, name) for name in CASES]
    if any("overlap of" in part for part in made):
        made.append("An overlap: host and device worked at the same time.")
    made += [part for part in (beside_torch(run), all_rows(run)) if part]
    others = [step for step in run["steps"] if step["ok"] is not True]
    made.append("; ".join([f"Steps: {len(run['steps']) - len(others)} ok", *(f"{step['name']} ({fate(step)})" for step in others)]) + ".")
    if run.get("kernels"):
        made.append("Kernels' checks, each by itself: " + "; ".join(f"{one['name']} ({fate(one)})" for one in run["kernels"]) + ".")
    if run.get("notes"):
        made.append("Notes on this run: " + "; ".join(run["notes"]) + ".")
    if run["explained"]:
        made.append(run["explained"])
    return "\n\n".join(made)
