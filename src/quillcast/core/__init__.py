"""The vocabulary every part of quillcast shares: ids, ranges, bundles, messages, trace records, errors, the Host."""
