def preprocessing_fn(inputs):
    return {name: inputs[name] for name in ("distance", "carrier", "late")}
