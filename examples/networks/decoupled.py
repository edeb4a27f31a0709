"""What decoupled scales are worth, with means and slopes renewed every few updates.

    python -m examples.networks.decoupled --data FILE.npz --out FOLDER

The networks, data and updates of the parts in experiments/results/networks/whole, one training with
the call and one with ``decoupled=True``. Each is a line of FOLDER/runs.jsonl; what is there is not
run again.
"""

import argparse
import itertools
from pathlib import Path

from examples.networks.ageing import MEASURED, Setting, programs, train
from examples.networks.methods import prepare
from examples.networks.tasks import load_task
from examples.networks.training import standardized
from examples.networks.whole import append, read_runs

SETTING = Setting("sgd", 64, 0.1, 1e-3)
STEPS = 300
#: Updates between two measurements.
EVERY = 10
METHODS = ("call", "call + decoupled scales")


def main() -> None:
    """Trains what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="FILE.npz of photographs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    finished = {(run["network"], run["method"]) for run in read_runs(options.out)}
    split, classes = load_task("photographs", options.data, 16, [20000, 2000, 10000])
    fitted_on = standardized(split.train.x[:MEASURED], split)
    for network, method in itertools.product(options.networks, METHODS):
        if (network, method) in finished:
            continue
        prepared = prepare(method, network, fitted_on[:2], classes, fitted_on)
        parts = programs(prepared, SETTING, split, classes, STEPS)
        run = {"network": network, "method": method, "every": EVERY, **SETTING._asdict()}
        run |= train(parts, split, SETTING, EVERY, 0, STEPS)
        append(options.out, [run])
        print(run, flush=True)


if __name__ == "__main__":
    main()
