"""What the trainings of Arpit et al. 2016 have in common (section 5)."""

from experiments.papers.grid import PAPER


def halved_every(epochs: int, of: int) -> tuple[tuple[float, float], ...]:
    """The learning rate halved every so many epochs."""
    return tuple((k * epochs / of, 0.5**k) for k in range(1, -(-of // epochs)))


#: Sections 5.1 to 5.4: 50 epochs at batch 50, the rate halved every ten; 5,000 training rows are
#: held out, and curves are those of the test rows.
FIGURES = PAPER.changed(
    model="nin",
    epochs=50,
    batch_size=50,
    learning_rate=0.05,
    rate_schedule=halved_every(10, 50),
    held_out=5000,
)

#: Section 5.5.
TABLE = FIGURES.changed(epochs=200, rate_schedule=halved_every(25, 200))
#: 400 images of each class of the training images and 200 of the extra ones are held out; here as
#: many, at random.
SVHN = {
    "held_out": 6000,
    "epochs": 25,
    "batch_size": 100,
    "learning_rate": 0.08,
    "rate_schedule": halved_every(5, 25),
}
