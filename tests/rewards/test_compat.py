import pytest

from easyvideor1.rewards import compat


def test_the_easyr1_function_scores_a_batch_in_its_form():
    inputs = [
        {"response": "<answer>B</answer>", "response_length": 9, "ground_truth": "B",
         "data_type": "video", "problem_type": "multiple choice", "problem": None, "problem_id": 1},
        {"response": "<answer>no</answer>", "ground_truth": "<answer>yes</answer>",
         "problem_type": "binary classification"},
        {"response": '<answer>{"time": [2, 6]}</answer>', "ground_truth": '{"time": [4, 8]}',
         "problem_type": "temporal grounding"},
        {"response": "5", "ground_truth": "5", "problem_type": "number"},
    ]  # fmt: skip
    scores = compat.main(inputs)
    assert scores == [
        {"overall": 1.0, "accuracy": 1.0, "format": 1.0},
        {"overall": pytest.approx(0.1), "accuracy": 0.0, "format": 1.0},
        {"overall": pytest.approx(0.4), "accuracy": pytest.approx(1 / 3), "format": 1.0},
        {"overall": pytest.approx(0.9), "accuracy": 1.0, "format": 0.0},
    ]
    assert compat.main(inputs[1:2], accuracy_weight=0.5, format_weight=0.5)[0]["overall"] == 0.5


def test_an_unknown_problem_type_is_an_error():
    with pytest.raises(ValueError, match="unknown problem type 'riddle'"):
        compat.main([{"response": "B", "ground_truth": "B", "problem_type": "riddle"}])
