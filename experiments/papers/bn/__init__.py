"""Items of Luo et al. 2019, Towards understanding regularization in batch normalization."""
