"""Datasets: two splits of standardized float32 arrays, from a name, a file, or a folder."""

from experiments.data._augment import crop_and_flip as crop_and_flip
from experiments.data._augment import draw_crops as draw_crops
from experiments.data._augment import pad_crop_flip as pad_crop_flip
from experiments.data._augmentations import AUGMENTATIONS as AUGMENTATIONS
from experiments.data._augmentations import POLICIES as POLICIES
from experiments.data._augmentations import Augment as Augment
from experiments.data._augmentations import find_augmentation as find_augmentation
from experiments.data._augmentations import unchanged as unchanged
from experiments.data._dataset import Dataset as Dataset
from experiments.data._describe import describe_sources as describe_sources
from experiments.data._load import BUNDLED as BUNDLED
from experiments.data._load import load as load
from experiments.data._published import POLICIES_FILE as POLICIES_FILE
from experiments.data._published import POLICIES_SOURCE as POLICIES_SOURCE
