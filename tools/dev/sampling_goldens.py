#!/usr/bin/env python3
"""Writes tests/golden/sampling/*.json: what the logits processors and the beam search of Hugging Face
transformers make of small inputs. Needs torch and transformers; run it again only to change the cases.

Numbers are rounded to three decimals before use, so that the file holds exactly what was computed on.
"""

import argparse
import json
import pathlib

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.generation import logits_process as lp
from transformers.modeling_outputs import CausalLMOutput


def rounded(tensor):
    """A float32 tensor whose values have three decimals, and the same values for JSON."""
    values = [round(v, 3) for v in tensor.flatten().tolist()]
    return torch.tensor(values, dtype=torch.float32).reshape(tensor.shape), values


def kept(scores):
    return [i for i, v in enumerate(scores[0].tolist()) if v != float("-inf")]


def run(processors, history, logits):
    scores = logits[None].clone()
    for processor in processors:
        scores = processor(history, scores)
    return scores


def stage_case(generator, vocab, spread):
    logits, values = rounded(torch.randn(vocab, generator=generator) * spread)
    history = torch.randint(0, vocab, (1, 24), generator=generator)
    case = {"logits": values, "history": history[0].tolist(), "repetition": [], "filters": []}
    for penalty in (0.8, 1.3, 2.0):
        scores = run([lp.RepetitionPenaltyLogitsProcessor(penalty)], history, logits)
        case["repetition"].append({"penalty": penalty, "logits": scores[0].tolist()})
    for temperature in (0.25, 1.0, 1.7):
        warm = [lp.TemperatureLogitsWarper(temperature)] if temperature != 1.0 else []
        for top_k, typical_p, top_p, min_p in (
            (1, 1.0, 1.0, 0.0), (7, 1.0, 1.0, 0.0), (0, 0.2, 1.0, 0.0), (0, 0.9, 1.0, 0.0), (0, 1.0, 0.3, 0.0),
            (0, 1.0, 0.95, 0.0), (0, 1.0, 1.0, 0.05), (0, 1.0, 1.0, 0.6), (20, 0.9, 0.8, 0.1), (40, 1.0, 0.9, 0.02),
        ):
            chain = list(warm)
            if top_k > 0:
                chain.append(lp.TopKLogitsWarper(top_k))
            if typical_p < 1:
                chain.append(lp.TypicalLogitsWarper(typical_p))
            if top_p < 1:
                chain.append(lp.TopPLogitsWarper(top_p))
            if min_p > 0:
                chain.append(lp.MinPLogitsWarper(min_p))
            scores = run(chain, history, logits)
            ids = kept(scores)
            logprobs = torch.log_softmax(scores[0].double(), -1)
            case["filters"].append({
                "temperature": temperature, "top_k": top_k, "typical_p": typical_p, "top_p": top_p, "min_p": min_p,
                "kept": ids, "logprobs": [round(logprobs[i].item(), 6) for i in ids],
            })
    return case


class TableConfig(PretrainedConfig):
    model_type = "pelton-table"


class TableModel(PreTrainedModel, GenerationMixin):
    """The next token's logits are a row of a table chosen by the last two tokens."""

    config_class = TableConfig
    _supports_cache_class = False

    def __init__(self, config, table):
        super().__init__(config)
        self.table = torch.nn.Parameter(table, requires_grad=False)
        self.post_init()

    def _init_weights(self, module):
        pass

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):
        return {"input_ids": input_ids}

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        vocab = self.config.vocab_size
        previous = torch.cat((torch.zeros_like(input_ids[:, :1]), input_ids[:, :-1]), dim=1)
        rows = (previous * 3 + input_ids) % vocab
        return CausalLMOutput(logits=self.table[rows])


def beam_cases(generator):
    cases = []
    for vocab, spread in ((13, 1.0), (24, 2.0), (24, 0.3)):
        table, values = rounded(torch.randn(vocab, vocab, generator=generator) * spread)
        runs = []
        for eos in ([], [2], [2, 5]):
            for num_beams in (2, 3, 5):
                for length_penalty in (1.0, 0.0, 2.0, -1.0):
                    for early_stopping in (False, True, "never"):
                        for max_tokens, min_tokens in ((1, 0), (8, 0), (14, 5)):
                            if not eos and (early_stopping is not False or min_tokens):
                                continue
                            config = TableConfig(vocab_size=vocab, num_hidden_layers=1)
                            model = TableModel(config, table).eval()
                            generation = GenerationConfig(
                                num_beams=num_beams, do_sample=False, max_new_tokens=max_tokens,
                                min_new_tokens=min_tokens or None, length_penalty=length_penalty,
                                early_stopping=early_stopping, num_return_sequences=num_beams, pad_token_id=-1 % vocab,
                                eos_token_id=eos or None, return_dict_in_generate=True, output_scores=True, use_cache=False,
                            )
                            prompt = torch.tensor([[1, 3]])
                            with torch.no_grad():
                                out = model.generate(prompt, generation_config=generation,
                                                     attention_mask=torch.ones_like(prompt))
                            lengths = (out.beam_indices >= 0).sum(dim=1).tolist()
                            runs.append({
                                "eos": eos, "num_beams": num_beams, "length_penalty": length_penalty,
                                "early_stopping": str(early_stopping).lower(), "max_tokens": max_tokens,
                                "min_tokens": min_tokens,
                                "sequences": [s[2:2 + n].tolist() for s, n in zip(out.sequences, lengths)],
                                "scores": [round(s, 5) for s in out.sequences_scores.tolist()],
                            })
        cases.append({"vocab": vocab, "prompt": [1, 3], "table": values, "runs": runs})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/sampling"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    generator = torch.Generator().manual_seed(20)
    source = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    stages = [stage_case(generator, vocab, spread) for vocab, spread in ((50, 1.0), (50, 3.0), (300, 2.0), (300, 6.0))]
    for name, cases in (("stages", stages), ("beams", beam_cases(generator))):
        text = json.dumps({"source": source, "cases": cases}, separators=(",", ":"))
        (arguments.out / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
