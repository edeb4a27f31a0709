"""What the trainings of Ikami et al. 2021 have in common (sections 4.1.1, 4.2.1 and 4.3.1)."""

from experiments.names import POLICIES
from experiments.papers.grid import PAPER

#: The paper names learning rates and decays for its own method; the rivals get the same.
CNN = PAPER.changed(weight_decay=1e-3, augment="crop-flip")

#: What other networks change of it. Where there are residual branches, the noise grows with depth;
#: in a plain network a noise of that size diverges.
RESNET = {"model": "resnet110", "learning_rate": 0.2, "growing_noise": 1.0}
WIDE_RESNET = RESNET | {"model": "wrn28x10", "weight_decay": 5e-3}

#: What the reduced presets train in the place of a residual network.
PLAIN = {"model": "cnn9", "growing_noise": 0.0}

#: Likewise in smoke presets, of which compilation takes the most time.
SMOKE = PLAIN | {"model": "cnn4", "augment": "none"}

#: Fast AutoAugment with cutout; with the published sub-policies if --data-dir has them.
FAST_AA = {"augment": POLICIES}

#: Recipes by the names of the paper.
METHODS = {"Ours": "cwo", "BN": "bn", "GN": "gn", "WS+BN": "ws+bn", "WS+GN": "ws+gn"}
