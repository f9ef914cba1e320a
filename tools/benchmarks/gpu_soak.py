def run(check): pass
