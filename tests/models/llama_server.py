"""Serve a tiny model with random weights by llama.cpp's own server, until standard input ends.

This script runs in an environment with `xllamacpp` and `gguf`; it prints the server's address.
"""

from __future__ import annotations

import sys

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType

WIDTH, HEADS, INNER, WINDOW = 32, 4, 64, 4096
CONTROL = ["<s>", "</s>"]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
LETTERS = ["\u2581", *(chr(number) for number in range(33, 127))]
PIECES = ["<unk>", *CONTROL, *BYTES, *LETTERS]


def write(path: str) -> None:
    """Write the model to the file `path`."""
    out = GGUFWriter(path, "llama")
    out.add_context_length(WINDOW)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    _add_tokens(out)
    _add_weights(out)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _add_tokens(out: GGUFWriter) -> None:
    out.add_vocab_size(len(PIECES))
    out.add_tokenizer_model("llama")
    out.add_token_list(PIECES)
    out.add_token_scores([-float(number) for number in range(len(PIECES))])
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256]
    out.add_token_types([*kinds, *[TokenType.NORMAL] * len(LETTERS)])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)


def _add_weights(out: GGUFWriter) -> None:
    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        out.add_tensor(f"{name}.weight", random.normal(0, 0.1, shape).astype(np.float32))

    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        out.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("token_embd", "output"):
        add(name, len(PIECES), WIDTH)
    for name in ("q", "k", "v", "output"):
        add(f"blk.0.attn_{name}", WIDTH, WIDTH)
    for name in ("gate", "up"):
        add(f"blk.0.ffn_{name}", INNER, WIDTH)
    add("blk.0.ffn_down", WIDTH, INNER)


def serve(path: str) -> None:
    """Serve the model of the file `path` at a free port."""
    wanted = xllamacpp.CommonParams()
    wanted.model.path = path
    wanted.n_ctx = WINDOW
    wanted.n_predict = 40
    wanted.n_parallel = 1
    wanted.cpuparams.n_threads = 1
    wanted.port = 0
    wanted.warmup = False
    server = xllamacpp.Server(wanted)
    print(server.listening_address, flush=True)
    sys.stdin.read()


write(sys.argv[1])
serve(sys.argv[1])
