"""What can be read, for the command ``datasets``."""

from experiments.data.load import BUNDLED, load

_READERS = """\
FILE.npz    arrays X_train, y_train, X_test, y_test; or X, y with an optional boolean test (rows)
            or test4 (4 x rows; seed s takes row s mod 4), else a quarter is drawn by the seed.
            X is (rows, features), (rows, height, width) or (rows, height, width, channels) of any
            numeric type; y holds class numbers 0, 1, 2, ... Never unpickled.
FILE.csv    a first line with the columns' names, then numbers; the classes, words or whole
            numbers, are in the column called label, class, target or y, in any case, and in the
            last column if none is. A quarter of the rows is drawn by the seed
FOLDER      images train|test/CLASS/*.{jpg,png}, all of one size; classes in alphabetical order;
            those in extra/CLASS are training images too. The paper items of ImageNet read
            pictures of any size, train|val/CLASS/*.{jpg,png}, while they train
FILE.tar    the same in a tar file (.tar, .tar.gz, .tar.xz, .tar.bz2)
FOLDER      meshes CLASS/train|test/*.off, as ModelNet40 comes; 1,024 points of each, drawn by the
            seed uniformly by area, centred and scaled into the unit ball
FOLDER      point clouds in HDF5 files with data (rows, points, 3) and label (rows, 1), as
            ModelNet40 is passed on, named in train_files.txt and test_files.txt; the first 1,024
            points of each
NAME        any of the TensorFlow Datasets that is prepared in the format array_record, in
            TFDS_DATA_DIR or ~/tensorflow_datasets; with classes, and rows of one shape. Needs no
            TensorFlow, but pip install 'jaxnorm[tfds]'. More than 2 GiB are read while training.

Columns are standardized on the training rows, images by channel."""


def describe_sources() -> str:
    """The bundled datasets with their sizes, and the formats that are read from files."""
    lines = []
    for name in BUNDLED:
        data = load(name, seed=0)
        shape = " x ".join(map(str, data.X_train.shape[1:]))
        lines.append(
            f"{name:<11} bundled: {len(data.X_train)} training and {len(data.X_test)} test rows of "
            f"{shape}, {data.num_classes} classes, split by the seed"
        )
    return "\n".join([*lines, _READERS])
