"""PEFT's own LoRA adapters and merges: merge_peft.py (MODEL ADAPTER MERGED OPTIONS)...

OPTIONS: JSON of LoraConfig's fields.  Writes an adapter with random matrices of the model in MODEL to ADAPTER, loads it again as anybody would, and
saves what merge_and_unload() makes of it in MERGED.
"""
import json
import sys

import peft
import torch
import transformers


def load(directory):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="auto")


def main(source, adapter, merged, options):
    torch.manual_seed(3)
    made = peft.get_peft_model(load(source), peft.LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:  # B is zero at first, and would change nothing
                parameter.copy_(torch.randn(parameter.shape) * 0.05)
    made.save_pretrained(adapter, save_embedding_layers=False)
    peft.PeftModel.from_pretrained(load(source), adapter).merge_and_unload().save_pretrained(merged)


if __name__ == "__main__":
    for at in range(1, len(sys.argv), 4):
        main(*sys.argv[at:at + 3], json.loads(sys.argv[at + 3]))
