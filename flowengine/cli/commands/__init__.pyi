from .init import examples_folder as examples_folder
