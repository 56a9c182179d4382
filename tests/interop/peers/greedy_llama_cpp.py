"""The logits of a GGUF file in llama.cpp for 16 tokens, and what its tokenizer makes of a text.

greedy_llama_cpp.py FILE TEXT     the answer is a line of JSON: prompt, logits, tokens and text (null: the file has no tokenizer)
"""
import json
import sys

import llama_cpp

if __name__ == "__main__":
    model = llama_cpp.Llama(model_path=sys.argv[1], n_ctx=64, logits_all=True, verbose=False, n_threads=1)
    prompt = [1, 5, 17, 42, 99, 7, 3, 249]
    model.eval(prompt)
    while len(prompt) < 16:  # the greedy ones
        prompt.append(int(model.scores[len(prompt) - 1].argmax()))
        model.eval(prompt[-1:])
    tokens = text = None
    if model.metadata["tokenizer.ggml.model"] != "none":
        tokens = model.tokenize(sys.argv[2].encode(), add_bos=True, special=False)
        text = model.detokenize(tokens).decode()
    print(json.dumps(dict(prompt=prompt, logits=model.scores[:len(prompt)].tolist(), tokens=tokens, text=text)))
