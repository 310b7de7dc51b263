"""Writes the seeds that are text, and needs nothing but Python; run after changing what targets should know.

usage: fuzz/make_text_seeds.py     (the seeds are kept in fuzz/corpus)
"""

import json
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
JSON, JSONL, CSV, TSV, TXT = (bytes([kind]) for kind in range(5))


def put(target, name, data):
    folder = os.path.join(ROOT, "fuzz_" + target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


alpaca = [{"instruction": f"q{i}", "input": "", "output": "a"} for i in range(4)]
messages = [{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                          {"role": "assistant", "content": "a", "loss": False}], "tools": "[]"}]
calls = [{"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": '{"name": "f", "arguments": {}}'},
                            {"from": "observation", "value": "r"}, {"from": "gpt", "value": "a"}]}]
parts = [{"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image", "image": "x"}]},
                       {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}]}]
tokens = [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "attention_mask": [1, 1, 0]}, {"input_ids": "[4]"}, {"input_ids": [2**40]}]
wide = {f"c{i}": i for i in range(300)}
put("rows", "alpaca", JSON + json.dumps(alpaca).encode())
put("rows", "mixed", JSONL + lines(alpaca + messages))
put("rows", "mixed_first", JSONL + lines(messages + alpaca))
put("rows", "calls", JSONL + lines(calls + parts))
put("rows", "history", JSONL + lines([{"query": "q", "response": "a", "history": [["x", "y"]], "system": "s"}]))
put("rows", "tokens", JSONL + lines(tokens))
put("rows", "texts", JSONL + lines([{"text": "你好"}, {"text": ""}, "bare", {"text": 1}]))
put("rows", "nulls", JSONL + lines([{"instruction": None, "input": None, "output": None}, {}, None] + alpaca))
put("rows", "wide", JSONL + lines([wide, {"messages": [wide]}]))
put("rows", "twice", JSONL + b'{"a": 1, "a": 2}\n')
put("rows", "long", JSONL + lines([{"text": "x" * 3000}]))
put("rows", "deep", JSON + b'{"text": ' * 600 + b"1" + b"}" * 600)
put("rows", "deep_lists", JSONL + b'{"q": ' + b"[" * 511 + b"]" * 511 + b"}\n")
put("rows", "cut", JSON + b'[{"text": "x"}, {"te')
put("rows", "table", CSV + 'q,response\r\n"a ""b""\r\n,c",d\r\n,\r\n'.encode())
put("rows", "index", CSV + b",query;x,response\n0,a,b\n")
put("rows", "wide_table", CSV + b",".join(b"c%d" % i for i in range(300)) + b"\n" + b"," * 299 + b"\n")
put("rows", "open_quote", CSV + b'q,r\nfox,"dog\n')
put("rows", "tabs", TSV + b"instruction\tinput\toutput\na\t\tb\n")
put("rows", "lines", TXT + "one\r\n\n二".encode())

piece_w = [[0, 0, 4, 0, 3, 0], [1, 4, 2, 0, 3, 0]]
whole = {"format": "danlu-native", "version": 1, "split": "TP2", "iteration": 1, "files": ["a", "b"],
         "tensors": {"w": {"shape": [6, 3], "pieces": piece_w}, "exp_avg.w": {"shape": [6, 3], "pieces": piece_w}},
         "optimizer": {"groups": [{"wd_mult": 1.0, "lr_mult": 1.0, "is_expert_parallel": False, "is_decoupled_lr": False}],
                       "scheduler": {}, "grad_scaler": None, "iteration": 1, "consumed_train_samples": 8}}
put("native_index", "whole", json.dumps(whole).encode())
put("native_index", "model_only", json.dumps({**whole, "optimizer": None, "tensors": {"w": whole["tensors"]["w"]}}).encode())
put("native_index", "hole", json.dumps({**whole, "tensors": {"w": {"shape": [6, 3], "pieces": piece_w[:1]}}}).encode())
put("native_index", "large", json.dumps({**whole, "tensors": {"w": {"shape": [2**40, 2**40], "pieces": piece_w}}}).encode())
put("native_index", "outside", json.dumps({**whole, "files": ["../a", "/b"]}).encode())

args = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "num_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
        "num_query_groups": 2, "group_query_attention": True, "ffn_hidden_size": 56, "padded_vocab_size": 128,
        "make_vocab_size_divisible_by": 64, "num_layer_list": None, "noop_layers": None, "params_dtype": "torch.bfloat16",
        "swiglu": True, "normalization": "RMSNorm", "rotary_base": 10000, "norm_epsilon": 1e-5, "untie_embeddings_and_output_weights": True,
        "expert_model_parallel_size": 1, "num_layers_per_virtual_pipeline_stage": None, "data_parallel_size": 1, "world_size": 4}
put("megatron_args", "plain", json.dumps(args).encode())
put("megatron_args", "lists", json.dumps({**args, "num_layer_list": "1,3", "noop_layers": "0"}).encode())
put("megatron_args", "noop", json.dumps({**args, "num_layers": 6, "noop_layers": [0, 5], "tensor_model_parallel_size": "2"}).encode())
put("megatron_args", "virtual", json.dumps({**args, "num_layers_per_virtual_pipeline_stage": 1, "virtual_pipeline_model_parallel_size": 2}).encode())
put("megatron_args", "experts", json.dumps({**args, "num_experts": 8, "expert_model_parallel_size": 2, "moe_tp_extend_ep": True}).encode())
put("megatron_args", "other_kinds", json.dumps({"num_layers": {"tuple": [1]}, "tensor_model_parallel_size": 2**63, "hidden_size": 1e308,
                                                "swiglu": "yes", "x": {"y": [None]}}).encode())
put("config", "adapter_alpha", json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1e308, "target_modules": ["q_proj"]}).encode())
