"""TRL's GRPOTrainer trains policies on responses that it is given: train_trl.py POLICY JOBS.

POLICY: an HF directory with a tokenizer.  JOBS: lines of JSON, a run each: samples, rows of --rl-log-samples in the order of groups; config, what
GRPOConfig gets; out, where the policy is saved.  All of a run's steps are of one rollout.
"""
import json
import sys

sys.modules["vllm"] = None  # importing it takes longer than all else, and nothing here samples

import datasets
import torch
import transformers
import trl


def loaded(policy):
    return transformers.AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)


def run(policy, job):
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    tokenizer.pad_token = tokenizer.eos_token
    samples = [json.loads(line) for line in open(job["samples"])]
    group = job["config"]["num_generations"]

    def rollout(prompts, trainer):
        assert prompts == [row["prompt"] for row in samples]
        return dict(prompt_ids=[tokenizer(prompt)["input_ids"] for prompt in prompts], completion_ids=[row["token_ids"] for row in samples],
                    logprobs=None, worth=[row["reward"] for row in samples])

    config = trl.GRPOConfig(output_dir=job["out"], per_device_train_batch_size=len(samples), shuffle_dataset=False, bf16=False, use_cpu=True,
                            gradient_checkpointing=False, lr_scheduler_type="constant", optim="adamw_torch", report_to="none", save_strategy="no",
                            disable_tqdm=True, **job["config"])
    trainer = trl.GRPOTrainer(model=loaded(policy), reward_funcs=lambda worth, **_: worth, args=config, processing_class=tokenizer,
                              train_dataset=datasets.Dataset.from_list([{"prompt": row["prompt"]} for row in samples[::group]]), rollout_func=rollout)
    trainer.train()
    trainer.save_model(job["out"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in open(sys.argv[2]):
        run(sys.argv[1], json.loads(line))
