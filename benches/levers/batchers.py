def batchers(bench, folder):
    pass
