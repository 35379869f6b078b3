"""Generation engines behind one protocol: token ids in, completions with behaviour logprobs out."""
