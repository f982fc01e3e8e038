"""Writes a model for llama.cpp: a llama of four layers with random weights, 14 MB. What it says is noise; what it costs is real.

Runs in .venv-llama.
"""

import argparse


def command_line():
    """The options. Read before the imports below, so that --help needs nothing but the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="where the model is written")
    parser.add_argument("--seed", type=int, default=7, help="of the random weights (default: %(default)s)")
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import gguf  # noqa: E402
import numpy as np  # noqa: E402

VOCABULARY, WIDTH, INNER, LAYERS, HEADS = 512, 256, 688, 4, 4
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
SPACE = "\u2581"  # how SentencePiece writes a space


def vocabulary():
    """(token, score, kind): the three special ones, every byte, then letters and made-up words."""
    special = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)]
    tokens = [(text, 0.0, kind) for text, kind in special]
    tokens += [(f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)]
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [SPACE, *letters, *(SPACE + a + b for a in letters for b in "aeiou"), *(a + b for a in letters for b in "aeiou")]
    words = words[: VOCABULARY - len(tokens)]
    tokens += [(word, -float(rank), gguf.TokenType.NORMAL) for rank, word in enumerate(words, 1)]
    assert len(tokens) == VOCABULARY
    return tokens


def main(path, seed):
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens, scores, kinds = zip(*vocabulary())
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)

    def weights(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.02).astype(np.float32))

    def norm(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    weights("token_embd.weight", VOCABULARY, WIDTH)
    weights("output.weight", VOCABULARY, WIDTH)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"{block}{part}.weight", WIDTH, WIDTH)
        weights(block + "ffn_gate.weight", INNER, WIDTH)
        weights(block + "ffn_up.weight", INNER, WIDTH)
        weights(block + "ffn_down.weight", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(OPTIONS.file, OPTIONS.seed)
