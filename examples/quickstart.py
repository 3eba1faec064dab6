"""Train on 20 labelled digits and use the classifier: python examples/quickstart.py"""

import sys
import tempfile

import maxmatch


def main(steps: int = 300) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recipe = maxmatch.compose("digits", "maxmatch", given={"data": {"labels": 20}, "train": {"steps": steps}})
        result = maxmatch.fit(recipe, out=f"{folder}/run")
        print(f"error {result['error']['last']:.1f} %, robust error {result['robust_error']:.1f} %")

        classifier = maxmatch.load(f"{folder}/run")
        digits = maxmatch.load_images("digits")
        print("predicted", *classifier.predict(digits.test_x[:10]))
        print("truth    ", *digits.test_y[:10].tolist())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
