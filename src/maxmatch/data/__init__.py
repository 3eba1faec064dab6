"""WHICH images: data sets by name, your own pictures, who is labelled, and what every step draws."""

# The names alone, so that the command line can check and complete them without importing torch; datasets.py loads them.
DATASETS = (
    "cifar10", "cifar100", "digits", "fashion-mnist", "imagenet", "mnist", "stl10", "svhn", "svhn-extra",
)  # fmt: skip
