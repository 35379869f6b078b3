"""The configuration schema: one dataclass per section, a docstring under each field, units in the names.

This is the one place where a key, its type, its default and its meaning stand. Composition of files
is in `compose.py`, checks across fields in `checks.py`. `when=` states the condition under which a
key has any effect: a key that the user set while its condition is false is refused as inert.
This module must not import anything heavy: `python -m rlvr.launch config` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from omegaconf import MISSING


def key(default: Any, when: str) -> Any:
    """A field that matters only when `when` holds, e.g. `key(0.1, when="algorithm.kl.coef > 0")`."""
    return field(default=default, metadata={"when": when})


def section(factory: Any, when: str) -> Any:
    """A whole section that matters only when `when` holds."""
    return field(default_factory=factory, metadata={"when": when})


@dataclass
class RunConfig:
    name: str = ""
    """Name of the run. Empty: the configuration's name and the time of day."""
    dir: str = ""
    """Folder of this run; must not hold another run. Empty: runs/<run.name>."""
    steps: int = 8
    """Optimizer steps to make."""
    seed: int = 0
    """Seeds issue order, few-shot choice, generated tasks and sampling."""
    start_timeout_s: float = 600.0
    """Deadline for every actor to be up, models loaded included."""


@dataclass
class ModelConfig:
    path: str = MISSING
    """Hub id, local folder, .gguf file, or package:<package>/<file inside an installed package>."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Governs learner compute, engine and reference alike; bfloat16 keeps float32 masters."""
    max_length: int = 0
    """Tokens of prompt plus completion that engine and learner are sized for. 0: the model's own limit."""
    cache_dir: str = ""
    """Where converted GGUF models are kept. Empty: $XDG_CACHE_HOME/rlvr, or ~/.cache/rlvr."""
    hub_timeout_s: float = 10.0
    """How long to wait for the hub to answer before giving up."""


@dataclass
class FieldsConfig:
    prompt: str = "question"
    """Column with the problem text."""
    reference: str = "answer"
    """Column with the reference answer."""
    solution: str = ""
    """Column with a worked solution for few-shot exemplars. Empty: exemplars show the reference answer."""
    category: str = ""
    """Column with the category. Empty: none, or what task.categorise says."""
    id: str = ""
    """Column with a stable id. Empty: <split>/<line number>."""


@dataclass
class FewShotConfig:
    k: int = 0
    """Exemplars before each problem, taken from the training split and excluded from training."""
    seed: int = key(0, when="task.few_shot.k > 0")
    """Chooses the exemplars."""


@dataclass
class ArithmeticConfig:
    operations: list[Literal["add", "subtract", "multiply", "divide"]] = field(
        default_factory=lambda: ["add", "subtract", "multiply"]
    )
    """Which operations to draw from."""
    difficulties: list[int] = field(default_factory=lambda: [1, 2])
    """Which difficulties to draw from, 1 (single digits) to 4."""
    wordings: Literal["all", "plain", "stories"] = "all"
    """Plain questions ("What is 3 + 4?"), stories that leave the choice of the operation to the reader, or both."""
    show_work: bool = key(False, when="task.few_shot.k > 0")
    """Exemplars show the calculation, a + b = c, before the answer."""
    train_size: int = 2048
    """Problems in the training split."""
    test_size: int = 256
    """Problems in the held-out split; disjoint from the training split."""


@dataclass
class FunctionsConfig:
    kinds: list[str] = field(default_factory=list)
    """Which kinds of function to ask for (rlvr.tasks.functions lists them). Empty: all."""
    tests: int = 6
    """Tests of each function; half of them are hidden."""
    train_size: int = 512
    """Problems in the training split."""
    test_size: int = 64
    """Problems in the held-out split; disjoint from the training split."""


@dataclass
class TaskConfig:
    name: Literal["arithmetic", "functions", "gsm8k", "jsonl", "hub"] = "arithmetic"
    """Where problems come from: generated (sums, small Python functions), GSM8K, your files, a data set of the hub."""
    path: str = key("", when="task.name in gsm8k,jsonl,hub")
    """Folder or .jsonl file; for hub, the data set's id. Empty with gsm8k: openai/gsm8k from the hub."""
    subset: str = key("", when="task.name == hub")
    """Configuration name of a hub data set."""
    train_split: str = key("train", when="task.name in jsonl,hub")
    """Name of the training split: <path>/<split>.jsonl, or the hub's split."""
    test_split: str = key("test", when="task.name in jsonl,hub")
    """Name of the held-out split."""
    fields: FieldsConfig = section(FieldsConfig, when="task.name in jsonl,hub")
    arithmetic: ArithmeticConfig = section(ArithmeticConfig, when="task.name == arithmetic")
    functions: FunctionsConfig = section(FunctionsConfig, when="task.name == functions")
    few_shot: FewShotConfig = field(default_factory=FewShotConfig)
    template: Literal["plain", "chat"] = "plain"
    """plain: text for base models. chat: the model's chat template."""
    system: str = key("", when="task.template == chat")
    """System prompt of the conversation."""
    instruction: str = ""
    """Sentence put before the exemplars (plain) or before each problem (chat)."""
    question_label: str = key("Question:", when="task.template == plain")
    """What stands before each problem; where the model writes it, its answer has ended."""
    answer_label: str = key("Answer:", when="task.template == plain")
    """What stands before each answer."""
    answer_line: str = key("#### {answer}", when="task.few_shot.k > 0")
    """How exemplars state the final answer; {answer} stands for it. The verifier must be able to read it."""
    stop: list[str] = field(default_factory=list)
    """Stop strings besides the end-of-sequence token. Empty with plain: the marker that opens the next problem."""
    max_prompt_tokens: int = 0
    """Longer prompts are bad rows. 0: model.max_length - max_new_tokens."""
    on_bad_row: Literal["error", "skip"] = "error"
    """error: refuse the data. skip: leave the row out (counted, each with file, line and reason in events.jsonl)."""
    categorise: str = ""
    """What category a problem has: difficulty | operators | module:function. Empty: the task's own, if any."""
    balance: bool = False
    """Draw equally from all categories instead of in proportion to their size."""


@dataclass
class CriterionConfig:
    verifier: str = MISSING
    """Name of a registered verifier, or module:function of your own."""
    weight: float = 1.0
    """Share in the weighted sum."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the verifier."""


@dataclass
class SandboxConfig:
    min_level: Literal["none", "limits", "confined", "namespaces"] = "confined"
    """How strongly programs of completions must be confined, as measured at the start; below, the run refuses."""
    packages: list[str] = field(default_factory=list)
    """What programs may import besides Python's own library; must be installed."""


@dataclass
class RewardConfig:
    criteria: dict[str, CriterionConfig] = field(default_factory=dict)
    """Criteria of the reward by name. The first one listed is the answer criterion: accuracy is counted by it."""
    workers: int = 1
    """Reward actors."""
    processes: int = 1
    """Killable grading processes of each reward actor."""
    timeout_s: float = 5.0
    """Deadline for judging one completion; its process is killed then."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    max_failure_rate: float = 0.05
    """Share of completions without a score (our failures) above which the run stops and shows examples."""


@dataclass
class RolloutConfig:
    engine: Literal["vllm", "simulated"] = "vllm"
    """simulated: latencies and a synthetic model, for tests and scaling studies."""
    engines: int = 1
    """Engines, each with its own copy of the weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda where there is one, else cpu; cuda where there is none is an error."""
    temperature: float = 1.0
    """Sampling temperature at the first step."""
    temperature_end: float | None = None
    """Temperature at the last step, linear in between. null: constant."""
    top_p: float = 1.0
    """Nucleus; below 1 it is refused for training until the learner can use the same nucleus."""
    top_k: int = 0
    """Sample from the k likeliest tokens, renormalised; the learner uses the same k. 0: all tokens."""
    max_staleness: int = 0
    """Weight versions that may lie between sampling and training. 0: strictly on-policy."""
    max_logprob_gap: float = 0.0
    """Largest mean |engine - learner| logprob before the run stops. 0: 0.01 in float32, 0.1 in bfloat16."""
    max_concurrent_prompts: int = 64
    """Prompts in flight on one engine."""
    block_size: int = key(32, when="rollout.engine == vllm")
    """Tokens per KV-cache block; prompts shorter than a block share nothing within a group."""
    kv_cache_gb: float = key(2.0, when="rollout.engine == vllm")
    """KV-cache of one engine on CPU, in GiB."""
    gpu_memory_share: float = key(0.5, when="rollout.engine == vllm")
    """Share of the GPU's memory that one engine takes."""
    threads: int = key(0, when="rollout.engine == vllm")
    """Compute threads of one engine on CPU. 0: the machine's cores divided by the engines on it."""
    request_timeout_s: float = 600.0
    """Deadline for one group of completions."""
    max_retries: int = 2
    """How often a prompt is dispatched anew after an infrastructure failure."""
    max_failed_groups: int = 8
    """Groups that may fail for good, after their retries, before the run stops."""
    sync_timeout_s: float = 120.0
    """Deadline of each phase of a weight update."""


@dataclass
class KLConfig:
    coef: float = 0.0
    """Weight of the KL divergence to the reference (the initial model). 0: no reference is loaded."""
    place: Literal["loss", "reward"] = key("loss", when="algorithm.kl.coef > 0")
    """loss: a term of each token's loss. reward: k1, summed over the completion, taken off its score."""
    estimator: Literal["k2", "k3"] = key("k3", when="algorithm.kl.coef > 0 and algorithm.kl.place == loss")
    """Schulman 2020, with d = reference - policy logprob. k2: d^2 / 2, gradient of KL(policy || reference).
    k3: exp(d) - d - 1, GRPO's. (k1 = -d has no gradient on average, so it is for place: reward only.)"""


@dataclass
class CorrectionConfig:
    kind: Literal["none", "truncated", "masked", "sequence_masked"] = "none"
    """Weight w = exp(learner - behaviour logprob) of each token, for engine mismatch and older weights. truncated:
    min(w, high). masked: 0 outside [low, high] (IcePop). sequence_masked: completions whose geometric mean lies outside
    count for nothing. none: the clipped ratio itself is taken against the behaviour logprobs."""
    low: float = key(0.5, when="algorithm.correction.kind in masked,sequence_masked")
    """Smallest weight that is kept."""
    high: float = key(2.0, when="algorithm.correction.kind != none")
    """Largest weight that is kept; truncated caps there."""


@dataclass
class OverlongConfig:
    margin_tokens: int = 0
    """Completions within so many tokens of max_new_tokens lose score, linearly up to `penalty` (DAPO). 0: none."""
    penalty: float = key(1.0, when="algorithm.overlong.margin_tokens > 0")
    """Score lost at max_new_tokens."""


@dataclass
class AlgorithmConfig:
    preset: Literal["none", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_pp_baseline"] = "none"
    """Sets the keys of this section as a paper has them (conf/algorithm/); keys that follow override it."""
    baseline: Literal["group_mean", "leave_one_out", "none"] = "group_mean"
    """What is subtracted from a score. leave_one_out: the mean of the group's other scores (RLOO)."""
    scale: Literal["group_std", "batch_std", "none"] = "group_std"
    """What it is then divided by: group_std (GRPO), batch_std (REINFORCE++; the learner waits), none (Dr. GRPO)."""
    criteria: Literal["summed", "separate"] = "summed"
    """summed: one score. separate: each criterion gets its own baseline and scale, then the weights (GDPO)."""
    ratio: Literal["token", "sequence"] = "token"
    """Importance ratio of each token, or its geometric mean over the completion (GSPO)."""
    objective: Literal["clip", "cispo"] = "clip"
    """clip: PPO's; clipped tokens lose their gradient. cispo: the ratio is capped, every token keeps its gradient."""
    clip_low: float = 0.2
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 + clip_high."""
    dual_clip: float = key(0.0, when="algorithm.objective == clip")
    """Bound on ratio x advantage where the advantage is negative, in advantages; above 1. 0: none."""
    aggregation: Literal["token", "sequence", "constant"] = "token"
    """token: mean over the step's tokens. sequence: mean of sequence means. constant: sum / max_new_tokens."""
    kl: KLConfig = field(default_factory=KLConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    mask_truncated: bool = False
    """Completions cut off at max_new_tokens count in the baseline, but not in the loss."""
    drop_equal_groups: bool = True
    """Drop groups whose raw scores are all equal: they carry no gradient (KL and length penalties apart)."""
    max_replacements: int = key(0, when="algorithm.drop_equal_groups == true")
    """Prompts issued per step in place of dropped groups (dynamic sampling). 0: none."""


@dataclass
class LearnerConfig:
    ranks: int = 1
    """Data-parallel learner processes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda where there is one, else cpu; cuda where there is none is an error."""
    zero_stage: int = 1
    """DeepSpeed ZeRO stage, 0 to 3."""
    lr: float = 1e-5
    """Peak learning rate of AdamW."""
    warmup_steps: int = 0
    """Steps of linear warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up, down to 0 at run.steps."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    beta1: float = 0.9
    """AdamW's first-moment decay."""
    beta2: float = 0.999
    """AdamW's second-moment decay."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this global norm."""
    share_prefix: bool = True
    """Compute each group's prompt once. false: one sequence per row."""
    tokens_per_microbatch: int = 4096
    """Tokens of one forward and backward pass; bounds activation memory."""
    logits_chunk: int = 512
    """Completion positions per chunk of the vocabulary projection; bounds logits memory."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more work."""
    threads: int = 0
    """Compute threads of one rank on CPU. 0: the machine's cores divided by the ranks on it."""
    overlap: Literal["auto", "on", "off"] = "auto"
    """Learn from groups while others are still being generated. auto: off on shared cores."""
    step_timeout_s: float = 3600.0
    """Deadline for the forward and backward passes of one step."""


@dataclass
class EvalConfig:
    before: bool = True
    """Evaluate before the first step."""
    after: bool = True
    """Evaluate after the last step."""
    every_steps: int = 0
    """Evaluate every so many steps. 0: never in between."""
    problems: int = 0
    """Problems of the held-out split to use, the first ones. 0: the whole split."""
    samples: int = 1
    """Completions per problem; pass@1 is their mean."""
    temperature: float = 0.0
    """0: greedy (then samples must be 1)."""
    max_new_tokens: int = 0
    """Length limit of an answer. 0: max_new_tokens."""
    checkpoint: str = ""
    """Verb eval only: a run's checkpoint folder, or a run folder (its last checkpoint). Empty: model.path."""


@dataclass
class CheckpointConfig:
    every_steps: int = 0
    """Save the model in Hugging Face format every so many steps. 0: never in between."""
    final: bool = True
    """Save it after the last step."""


@dataclass
class ClusterConfig:
    address: str = ""
    """Ray cluster to join: auto or host:port. Empty: start one on this machine."""
    dashboard: bool = True
    """Serve the Ray dashboard and print its address."""
    dashboard_host: str = key("127.0.0.1", when="cluster.dashboard == true")
    """Interface that the dashboard listens on."""
    dashboard_port: int = key(0, when="cluster.dashboard == true")
    """Its port. 0: the first free one from 8265 on."""


@dataclass
class TrackConfig:
    console: Literal["auto", "live", "plain", "off"] = "auto"
    """auto: live on a terminal, else plain lines."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Send metrics to Weights & Biases. offline: keep them in the run folder for `wandb sync`."""
    wandb_project: str = key("rlvr", when="track.wandb != off")
    """Project of the wandb run."""


@dataclass
class Config:
    """Everything a run can be told."""

    prompts_per_step: int = 8
    """Prompts, so groups, of one optimizer step."""
    completions_per_prompt: int = 8
    """G: completions in a group."""
    max_new_tokens: int = 64
    """Longest completion, in tokens."""
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
