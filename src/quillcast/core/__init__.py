"""The vocabulary that all parts of quillcast share: ids, ranges, bundles, messages, trace records, errors, `Host`."""
