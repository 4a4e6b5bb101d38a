"""The report's pictures: rate, latency and log ends over time, with the faults drawn over them (plotly)."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from harness.report.series import FaultSpan, Series

TYPE_COLOR = {"ok": "#2a9d63", "fail": "#d64545", "info": "#e0a030"}
CLUSTER_COLOR = {"A": "#2563b8", "B": "#8a3fb5", "C": "#b5703f"}
FAULT_COLORS = ("#d64545", "#e07b30", "#c2a200", "#3f8f8f", "#4a6fd0", "#8a4fbf", "#b04a86", "#6d6d6d")
DASH = {"send": "solid", "txn": "solid", "poll": "dot"}


def figure(series: Series) -> go.Figure:
    """Three panels over one time axis: events per second, latency of each operation, log end offsets."""
    plot = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
        row_heights=[0.38, 0.38, 0.24],
        subplot_titles=(
            "Operations per second",
            "Latency of operations, ms",
            "Log end offsets, all partitions",
        ),
    )
    _draw_rates(plot, series)
    _draw_latencies(plot, series)
    for cluster, (x, y) in series.ends.ends.items():
        line = {"color": CLUSTER_COLOR.get(cluster)}
        plot.add_trace(go.Scatter(x=x, y=y, mode="lines", name=f"log end {cluster}", line=line), row=3, col=1)
    _draw_faults(plot, series.faults, series.end_s)
    plot.update_yaxes(rangemode="tozero", row=1, col=1)
    plot.update_yaxes(type="log", row=2, col=1)
    plot.update_xaxes(title_text="seconds since the run began", row=3, col=1, range=[0, series.end_s or 1])
    plot.update_layout(
        height=900,
        template="plotly_white",
        margin={"l": 60, "r": 20, "t": 60, "b": 40},
        legend={"orientation": "h", "y": -0.07},
        hovermode="closest",
    )
    return plot


def _draw_rates(plot: go.Figure, series: Series) -> None:
    for (cluster, f, kind), values in series.rates.rates.items():
        if f not in DASH and kind == "ok":
            continue
        line = {
            "color": CLUSTER_COLOR.get(cluster, "#555") if kind == "ok" else TYPE_COLOR[kind],
            "dash": DASH.get(f, "dash"),
            "width": 1.6,
        }
        name = f"{cluster} {f} {kind}"
        curve = go.Scatter(x=series.rates.times, y=values, mode="lines", name=name, legendgroup=name, line=line)
        plot.add_trace(curve, row=1, col=1)


def _draw_latencies(plot: go.Figure, series: Series) -> None:
    for (cluster, f, kind), (x, y) in series.latencies.points.items():
        if f == "poll" and kind == "ok":
            continue
        name = f"{cluster} {f} {kind}"
        points = go.Scatter(
            x=x,
            y=y,
            mode="markers",
            name=name,
            legendgroup=name,
            showlegend=False,
            marker={"size": 4, "opacity": 0.45, "color": TYPE_COLOR[kind]},
            hovertemplate=f"{name}<br>%{{x:.2f}} s: %{{y:.1f}} ms<extra></extra>",
        )
        plot.add_trace(points, row=2, col=1)
    for q, (x, y) in series.latencies.quantiles.items():
        line = {"color": "#333", "width": 1 + q}
        plot.add_trace(go.Scatter(x=x, y=y, mode="lines", name=f"write p{int(q * 100)}", line=line), row=2, col=1)


def fault_colors(faults: list[FaultSpan]) -> dict[str, str]:
    """One colour per nemesis, the same in every picture of a report."""
    names = sorted({span.name for span in faults})
    return {name: FAULT_COLORS[number % len(FAULT_COLORS)] for number, name in enumerate(names)}


def _draw_faults(plot: go.Figure, faults: list[FaultSpan], end_s: float) -> None:
    colors = fault_colors(faults)
    shown: set[str] = set()
    for span in faults:
        end = span.end if span.end is not None else end_s
        for row in (1, 2, 3):
            plot.add_vrect(
                x0=span.start,
                x1=max(end, span.start + 0.05),
                fillcolor=colors[span.name],
                opacity=0.16 if span.bit else 0.06,
                line_width=0,
                layer="below",
                row=row,
                col=1,
            )
        plot.add_trace(
            go.Scatter(
                x=[span.start, max(end, span.start + 0.05)],
                y=[0, 0],
                mode="lines",
                line={"color": colors[span.name], "width": 8},
                name=span.name,
                legendgroup=f"fault {span.name}",
                showlegend=span.name not in shown,
                hovertemplate=f"fault {span.fault_id}: {span.name} on {span.target}<extra></extra>",
            ),
            row=1,
            col=1,
        )
        shown.add(span.name)
