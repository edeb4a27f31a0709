"""What a comparison leaves behind: two CSV files, a picture, a table."""

from experiments.reports._csv import CURVES_COLUMNS as CURVES_COLUMNS
from experiments.reports._csv import RESULTS_COLUMNS as RESULTS_COLUMNS
from experiments.reports._csv import write_csv as write_csv
from experiments.reports._csv import write_curves as write_curves
from experiments.reports._csv import write_results as write_results
from experiments.reports._curves import draw_curves as draw_curves
from experiments.reports._files import prepare_folder as prepare_folder
from experiments.reports._files import write_whole as write_whole
from experiments.reports._picture import COLOURS as COLOURS
from experiments.reports._picture import STYLES as STYLES
from experiments.reports._picture import new_figure as new_figure
from experiments.reports._picture import picture as picture
from experiments.reports._show import show_table as show_table
from experiments.reports._table import Table as Table
from experiments.reports._table import comparison_table as comparison_table
from experiments.reports._table import markdown as markdown
from experiments.reports._table import provenance as provenance
from experiments.reports._table import spread as spread
