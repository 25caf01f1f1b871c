"""Repairs: a closed range of what a live job wrote, made again by its code of today and put in the place of the old."""
