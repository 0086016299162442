"""Settings shared by every test."""

from hypothesis import settings

# Examples take as long as they take: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True)
settings.load_profile("quillcast")
