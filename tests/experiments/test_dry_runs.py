"""Parameters, steps and learning rates of the full presets, from shapes, against the papers."""

import pytest

from experiments.papers.full import SHAPES, dry_table, full_cells
from experiments.papers.registry import ITEMS


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


#: Item, cell, millions of parameters to one digit, steps, first and last learning rate. The deeper
#: networks take seconds to trace.
CASES = [
    # Ikami et al.: 390 steps an epoch, half a cosine; He et al.: 1.7M; Zagoruyko: 36.5M.
    ("cwo/tab1", "BN, CNN, CIFAR-10, standard", 1.9, 200 * 390, 0.1, 0.0),
    slow("cwo/tab1", "BN, ResNet-110, CIFAR-10, standard", 1.7, 200 * 390, 0.2, 0.0),
    slow("cwo/tab1", "BN, WRN-28-10, CIFAR-10, standard", 36.5, 200 * 390, 0.2, 0.0),
    slow("cwo/tab2", "BN, B = 4, CIFAR-10", 36.5, 200 * 12_500, 0.2 / 32, 0.0),
    # Wang et al.: 1.8M, of 1,024 points.
    ("cwo/tab5", "BN", 1.8, 250 * 307, 0.1, 0.0),
    # He et al.: 25.6M; three drops to a tenth.
    slow("cwo/tab6", "BN", 25.6, 100 * 5004, 0.1, 1e-4),
    # Kutsuna: 0.95 every three or five epochs, down to 0.001.
    ("lcw/tab1", "VGG19, CIFAR-10", 20.6, 300 * 390, 0.1, 1e-3),
    ("lcw/tab1", "ResNet18, CIFAR-10", 11.2, 300 * 390, 0.1, 1e-3),
    ("lcw/tab1", "ResNet18, CIFAR-100", 11.2, 500 * 390, 0.1, 1e-3),
    ("lcw/fig6", "VGG19, CIFAR-100", 20.6, 500 * 390, 0.1, 1e-3),
    # 50 sigmoid layers of 256: 3072 x 256 + 49 x 256^2 and the head.
    slow("lcw/fig5", "BN, CIFAR-10", 4.0, 100 * 390, 0.1, 1e-3),
    # Arpit et al.: 1.55M in the kernels of section 5; 45,000 rows, halved seven times; SVHN four.
    ("normprop/tab1", "BN, CIFAR-10", 1.6, 200 * 900, 0.05, 0.05 / 2**7),
    ("normprop/tab1", "BN, SVHN", 1.6, 25 * 5983, 0.08, 0.08 / 2**4),
    ("normprop/fig1", "global, batch 50", 1.6, 30 * 900, 0.05, 0.05 / 4),
    ("normprop/fig4", "batch 1", 1.6, 50 * 45_000, 0.001, 0.001 / 16),
    # Littwin and Wolf: 0.05, 0.02, then a tenth every hundred epochs. Clevert et al.'s kernels have
    # 1.64M; twice as wide 6.5M.
    ("vcl/tab2", "ELU, CIFAR-100", 1.7, 500 * 200, 0.05, 2e-5),
    ("vcl/tab3", "ELU", 6.6, 250 * 400, 0.05, 2e-4),
    # Luo et al.: (1 - 1e-4) a step; on ImageNet three drops.
    ("bn/fig2ab", "BN, M = 128", 11.2, 200 * 390, 0.1, 0.1 * (1 - 1e-4) ** 77_999),
    ("bn/fig2cd", "BN", 8.5, 200 * 390, 0.1, 0.1 * (1 - 1e-4) ** 77_999),
    ("bn/fig2gh", "BN + dropout, M = 1024", 11.2, 200 * 48, 0.8, 0.8 * (1 - 1e-4) ** 9599),
    ("bn/fig3", "BN, M = 128", 11.7, 100 * 10_009, 0.1, 1e-4),
]


@pytest.mark.kept("fig6", "tab5")
@pytest.mark.parametrize(("item", "cell", "millions", "steps", "first", "last"), CASES)
def test_sizes_and_schedules_are_the_papers(item, cell, millions, steps, first, last):
    found = next(c for c in full_cells(ITEMS[item]) if c.cell.name.startswith(cell))
    assert round(found.parameters / 1e6, 1) == millions
    assert found.steps == steps
    begins, ends = found.rates
    assert begins == pytest.approx(first, rel=1e-5)
    assert ends == pytest.approx(last, rel=1e-2, abs=1e-7)


def test_the_shape_of_every_tables_data_is_known():
    for item in ITEMS.values():
        if item.grid:
            assert {cell.dataset for cell in item.grid.cells} <= set(SHAPES)


def test_one_row_for_each_kind_of_cell():
    header, rows = dry_table(ITEMS["normprop/tab1"])
    assert [row[0] for row in rows] == [
        "NormProp, CIFAR-10",
        "NormProp, CIFAR-100",
        "NormProp, SVHN",
    ]
    assert len(header) == len(rows[0])
    assert dry_table(ITEMS["lcw/fig1"])[1] == []
