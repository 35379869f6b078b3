"""From a configuration to a task: GSM8K, JSON Lines, the hub, and what happens to bad rows and long prompts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlvr.config import Config
from rlvr.errors import ConfigError, DataError, UserError
from rlvr.records import Prompt
from rlvr.tasks import build, check_lengths

GSM8K = [
    ("Tom has 3 apples and buys 4. How many?", "He has 3+4=<<3+4=7>>7 apples.\n#### 7"),
    ("Ann earns $1,000 twice. How much?", "She earns 1000*2 = $<<1000*2=2000>>2,000.\n#### 2,000"),
    ("A rope of 9 m is cut in 3. How long is a part?", "Each is 9/3=<<9/3=3>>3 m.\n#### 3"),
]


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def gsm8k_rows(problems=GSM8K) -> list[dict]:
    return [{"question": question, "answer": answer} for question, answer in problems]


@pytest.fixture
def gsm8k(tmp_path) -> Config:
    write(tmp_path / "train.jsonl", gsm8k_rows())
    write(tmp_path / "test.jsonl", gsm8k_rows(GSM8K[:1]))
    config = Config()
    config.task.name = "gsm8k"
    config.task.path = str(tmp_path)
    return config


@pytest.fixture
def jsonl(tmp_path) -> Config:
    config = Config()
    config.task.name = "jsonl"
    config.task.path = str(tmp_path)
    return config


def test_gsm8k_takes_the_final_answer_as_reference_and_hides_annotations(gsm8k):
    gsm8k.task.few_shot.k = 2
    task = build(gsm8k)
    assert task.test[0].reference == "7"
    assert task.test[0].id == "test/1"
    text = task.test[0].text
    assert "<<" not in text
    assert text.count("#### ") == 2
    assert text.endswith("Question: Tom has 3 apples and buys 4. How many?\nAnswer:")
    assert task.stop == ("\nQuestion:",)
    assert len(task.train) == 1
    assert task.train[0].extra["answer"].count("<<") == 1  # a user's verifier sees the row as it is


def test_gsm8k_exemplar_reads_as_a_person_would_write_it(gsm8k):
    gsm8k.task.few_shot.k = 2
    shown = {shot.question: text for shot, text in zip(*_exemplars(gsm8k), strict=True)}
    for question, text in shown.items():
        expected = (
            dict(GSM8K)[question].replace("<<3+4=7>>", "").replace("<<1000*2=2000>>", "").replace("<<9/3=3>>", "")
        )
        assert text == f"Question: {question}\nAnswer: {expected}"


def _exemplars(config: Config):
    task = build(config)
    return task.exemplars, task.test[0].text.split("\n\n")[:-1]


def test_gsm8k_rows_without_the_marker_are_bad(gsm8k, tmp_path):
    write(
        tmp_path / "train.jsonl",
        [*gsm8k_rows(), {"question": "q", "answer": "72"}, {"question": "q", "answer": "x\n####"}],
    )
    with pytest.raises(
        DataError, match=r"train\.jsonl:4: field 'answer' has no ####(.|\n)*train\.jsonl:5: .*nothing after"
    ):
        build(gsm8k)


def test_skipped_rows_are_left_out_and_kept_for_counting(gsm8k, tmp_path):
    write(tmp_path / "train.jsonl", [{"question": "q"}, *gsm8k_rows()])
    gsm8k.task.on_bad_row = "skip"
    task = build(gsm8k)
    assert [prompt.id for prompt in task.train] == ["train/2", "train/3", "train/4"]
    assert [(row.line, "no field 'answer'" in row.reason) for row in task.bad_rows] == [(1, True)]


def test_a_split_without_a_usable_row_is_an_error_even_when_skipping(gsm8k, tmp_path):
    write(tmp_path / "test.jsonl", [{"question": "q"}])
    gsm8k.task.on_bad_row = "skip"
    with pytest.raises(DataError, match=r"held-out split has no usable row .*test\.jsonl:1"):
        build(gsm8k)


def test_fields_are_mapped_and_the_row_is_kept(jsonl, tmp_path):
    rows = [{"id": "a", "problem": "1 + 1?", "result": 2, "type": "sum", "proof": "1 + 1 = 2", "source": "book"}]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "test.jsonl", rows)
    fields = jsonl.task.fields
    fields.prompt, fields.reference, fields.category, fields.id, fields.solution = (
        "problem",
        "result",
        "type",
        "id",
        "proof",
    )
    prompt = build(jsonl).train[0]
    assert (prompt.id, prompt.reference, prompt.category) == ("train/a", "2", "sum")
    assert prompt.extra["source"] == "book"
    assert (prompt.extra["file"], prompt.extra["line"]) == (str(tmp_path / "train.jsonl"), 1)


def test_the_same_id_twice_in_a_split_is_a_bad_row(jsonl, tmp_path):
    rows = [{"id": 7, "question": "1 + 1?", "answer": 2}, {"id": 7, "question": "1 + 2?", "answer": 3}]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "test.jsonl", rows[:1])
    jsonl.task.fields.id = "id"
    with pytest.raises(DataError, match=r"train\.jsonl:2: id '7' stands on line 1 already"):
        build(jsonl)


def test_one_file_is_split_by_question_and_never_by_seed(jsonl, tmp_path):
    rows = [{"question": f"{n} + 1?", "answer": n + 1} for n in range(300)]
    jsonl.task.path = str(write(tmp_path / "all.jsonl", rows + rows[:50]))
    task = build(jsonl)
    train, test = ({prompt.text for prompt in split} for split in (task.train, task.test))
    assert not train & test
    assert len(train | test) == 300
    assert 15 <= len(test) <= 45
    jsonl.run.seed = 5
    jsonl.task.path = str(write(tmp_path / "all.jsonl", rows[::-1]))
    assert {prompt.text for prompt in build(jsonl).test} == test


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "does not exist"), (".", r"lacks train\.jsonl and test\.jsonl; it has: other\.jsonl")],
)
def test_missing_data_says_what_was_looked_for(jsonl, tmp_path, path, message):
    write(tmp_path / "other.jsonl", [{"question": "q", "answer": 1}])
    jsonl.task.path = str(tmp_path / path)
    with pytest.raises(DataError, match=message):
        build(jsonl)


def test_an_unknown_task_suggests_the_nearest_name():
    config = Config()
    config.task.name = "gsm8"
    with pytest.raises(ConfigError, match="did you mean gsm8k"):
        build(config)


@pytest.mark.parametrize(("name", "path"), [("gsm8k", ""), ("hub", "nobody/nothing")])
def test_an_unreachable_hub_fails_at_once_with_what_to_do(monkeypatch, name, path):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard: nobody listens
    config = Config()
    config.task.name = name
    config.task.path = path
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:9.*refused.*task\.path"):
        build(config)


@pytest.fixture
def hub_library(monkeypatch):
    """Stands for the package datasets, whose import takes seconds; the hub itself is forbidden."""
    library = ModuleType("datasets")
    library.asked = []
    library.rows = {"train": [{"q": "1 + 1?", "a": 2}, {"q": "1 + 2?", "a": None}], "validation": [{"q": "2?", "a": 2}]}

    def load_dataset(name, subset, split):
        library.asked.append((name, subset, split))
        return library.rows[split]

    library.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return library


@pytest.fixture
def hub_config():
    config = Config()
    config.task.name, config.task.path, config.task.subset = "hub", "nobody/sums", "easy"
    config.task.test_split = "validation"
    config.task.fields.prompt, config.task.fields.reference = "q", "a"
    return config


def test_a_hub_data_set_is_read_by_subset_and_split_and_its_bad_rows_are_named(hub_library, hub_config):
    with pytest.raises(DataError, match=r"nobody/sums/train:2: field 'a' \(task\.fields\.reference\) is null"):
        build(hub_config)
    hub_config.task.on_bad_row = "skip"
    task = build(hub_config)
    assert [(prompt.id, prompt.reference) for prompt in task.train + task.test] == [("train/1", "2"), ("test/1", "2")]
    assert hub_library.asked[-2:] == [("nobody/sums", "easy", "train"), ("nobody/sums", "easy", "validation")]


def test_what_the_hub_library_raises_is_told_with_the_data_sets_name(hub_library, hub_config):
    del hub_library.rows["validation"]
    hub_config.task.on_bad_row = "skip"
    with pytest.raises(UserError, match=r"data set nobody/sums \(easy, validation\) cannot be loaded: 'validation'"):
        build(hub_config)


def test_an_answer_line_without_the_answer_is_refused(gsm8k):
    gsm8k.task.few_shot.k = 1
    gsm8k.task.answer_line = "####"
    with pytest.raises(ConfigError, match=r"task\.answer_line"):
        build(gsm8k)


def test_a_task_is_the_same_in_another_process(gsm8k):
    program = (
        "import sys; from rlvr.config import Config; from rlvr.tasks import build; c = Config();"
        "c.task.name = 'gsm8k'; c.task.path = sys.argv[1]; c.task.few_shot.k = 1;"
        "print([p.text for p in build(c).train])"
    )
    gsm8k.task.few_shot.k = 1
    done = subprocess.run([sys.executable, "-c", program, gsm8k.task.path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([prompt.text for prompt in build(gsm8k).train])


def test_tasks_import_nothing_heavy():
    program = (
        "import sys; import rlvr.tasks; heavy = ('torch', 'ray', 'vllm', 'transformers', 'datasets');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def prompts(n: int) -> list[Prompt]:
    return [
        Prompt(id=f"train/{i}", reference="1", text="t", extra={"file": "d.jsonl", "line": i}) for i in range(1, n + 1)
    ]


def test_long_prompts_are_refused_with_file_length_limit_and_keys():
    with pytest.raises(DataError) as caught:
        check_lengths(prompts(3), [10, 99, 50], 50, "error")
    message = str(caught.value)
    assert "d.jsonl:2: prompt 'train/2' has 99 tokens, and the limit is 50" in message
    assert "task.few_shot.k" in message and "model.max_length" in message
    assert "train/3" not in message  # exactly at the limit


def test_long_prompts_are_skipped_and_reported():
    kept, bad = check_lengths(prompts(3), [10, 99, 50], 50, "skip")
    assert [prompt.id for prompt in kept] == ["train/1", "train/3"]
    assert [(row.file, row.line) for row in bad] == [("d.jsonl", 2)]


def test_skipping_every_prompt_is_an_error():
    with pytest.raises(DataError, match="all 2 prompts are longer than 5 tokens, the shortest has 6"):
        check_lengths(prompts(2), [6, 7], 5, "skip")
