"""What decoupled scales are worth, with means and slopes renewed every few updates.

    python -m examples.networks.decoupled --data FILE.npz --out FOLDER --networks ...

The networks and data of experiments/results/networks/whole, one training with the call and one with
``decoupled=True``. Each is a line of FOLDER/runs.jsonl; what is there is not run again.
"""

import argparse
import itertools
from pathlib import Path

from examples.networks.ageing import MEASURED, Setting, programs, train
from examples.networks.methods import prepare
from examples.networks.tasks import load_task
from examples.networks.training import standardized
from examples.networks.whole import append, read_runs

#: Updates between two measurements.
EVERY = 10
METHODS = ("call", "call + decoupled scales")

#: Settings that tell runs apart; the first runs had 300 updates.
KEYS = ("network", "method", "optimizer", "rate", "decay", "steps")


def main() -> None:
    """Trains what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="FILE.npz of photographs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--decays", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [{"steps": 300, **run} for run in read_runs(options.out)]
    finished = {tuple(run[key] for key in KEYS) for run in runs}
    split, classes = load_task("photographs", options.data, 16, [20000, 2000, 10000])
    fitted_on = standardized(split.train.x[:MEASURED], split)
    for network, method in itertools.product(options.networks, options.methods):
        settings = [Setting(options.optimizer, 64, options.rate, x) for x in options.decays]
        common = {"network": network, "method": method, "every": EVERY, "steps": options.steps}
        wanted = [({**common, **setting._asdict()}, setting) for setting in settings]
        missing = [x for x in wanted if tuple(x[0][key] for key in KEYS) not in finished]
        if not missing:
            continue
        prepared = prepare(method, network, fitted_on[:2], classes, fitted_on)
        for run, setting in missing:
            parts = programs(prepared, setting, split, classes, options.steps)
            done = {**run, **train(parts, split, setting, EVERY, 0, options.steps)}
            append(options.out, [done])
            print(done, flush=True)


if __name__ == "__main__":
    main()
