"""A local page where one drops an image and sees what a model finds in it, and which exemplars say so.

`inference` turns the bytes of an image into plain data, `floors` searches thresholds for several recall floors in the
background, `site` says what is at which address, `messages` and `server` speak HTTP and keep the limits. Nothing of an
upload outlives its answer.
"""
